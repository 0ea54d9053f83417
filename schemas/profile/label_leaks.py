"""A uniform sample of the rows of the train split, and what each feature alone tells about the label in it.

The sample has the rows with the smallest ranks, which are hashes of what the rows hold and of their offsets. So it is
bounded and mergeable, and depends neither on the order of the rows nor on the names of their files.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas.storage.json_files import parse_json

VALUES = 1 << 19  # of all rows of a sample together
LEAST_DRAWN, MOST_DRAWN = 256, 8192  # rows
CLASSES = 1000  # of a label; one with more in the sample is not judged
_ARRAYS = ("ranks", "labels", "numbers", "codes")
_META = b"sample"
_ANY_RANK = 2**64 - 1


@dataclasses.dataclass
class Drawn:
    """Rows.

    Attributes:
      ranks: uint64 `[n]`: hashes of what they hold and of their offsets; the smallest ones stay.
      labels: `[n]`: float64 numbers, or uint64 hashes of classes.
      numbers: float32 `[n, width]`: the features of numbers, side by side.
      codes: uint64 `[n, features]`: hashes of strings, 0 for a missing one.
    """

    ranks: np.ndarray
    labels: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray

    def taken(self, places: np.ndarray) -> Drawn:
        """Some of them."""
        return Drawn(*(getattr(self, name)[places] for name in _ARRAYS))


class Sample:
    """The sample of some rows.

    Attributes:
      rows: how many rows it has at most.
      names: the names of the classes in it, by their hashes; of a label that is a number, none.
    """

    def __init__(self, width: int) -> None:
        self.rows = min(MOST_DRAWN, max(LEAST_DRAWN, VALUES // max(width, 1)))
        self.names: dict[int, bytes] = {}
        self._drawn: list[Drawn] = []
        self._held = 0
        self._limit = _ANY_RANK  # rows from this rank on are not in the sample

    def places(self, ranks: np.ndarray) -> np.ndarray:
        """The places of the rows that may be in the sample, by their ranks."""
        return np.flatnonzero(ranks <= np.uint64(self._limit))

    def add(self, drawn: Drawn, names: Mapping[int, bytes]) -> None:
        """Adds rows of the train split; `names` has at least the names of their classes, by their hashes."""
        if not len(drawn.ranks):
            return
        self._drawn.append(drawn)
        self._held += len(drawn.ranks)
        if drawn.labels.dtype == np.uint64:
            self.names |= {key: names[key] for key in np.unique(drawn.labels).tolist()}
        if self._held > 2 * self.rows:
            self._cut()

    def merge(self, other: Sample) -> None:
        """Adds the rows of another one."""
        drawn = other.drawn()
        if drawn is not None:
            self.add(drawn, other.names)

    def drawn(self) -> Drawn | None:
        """The rows, by ascending rank; None if there is none."""
        self._cut()
        return self._drawn[0] if self._drawn else None

    def to_batch(self) -> pa.RecordBatch:
        """The sample as a row of lists, and the shapes of its arrays."""
        drawn = self.drawn()
        arrays = {} if drawn is None else {name: np.asarray(getattr(drawn, name)) for name in _ARRAYS}
        columns = {name: pa.array(array.reshape(-1)) for name, array in arrays.items()} | {
            "classes": pa.array(list(self.names), pa.uint64()),
            "names": pa.array(list(self.names.values()), pa.binary()),
        }
        meta = {"rows": self.rows, "shapes": {name: array.shape for name, array in arrays.items()}}
        row = [pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values) for values in columns.values()]
        return pa.RecordBatch.from_arrays(row, list(columns)).replace_schema_metadata({_META: json.dumps(meta)})

    @staticmethod
    def from_table(table: pa.Table) -> Sample:
        """The inverse of `to_batch`."""
        meta = parse_json(table.schema.metadata[_META])
        columns = {name: table.column(name).chunk(0).flatten() for name in table.schema.names}
        sample = Sample(1)
        sample.rows = meta["rows"]
        names = dict(zip(columns["classes"].to_pylist(), columns["names"].to_pylist(), strict=True))
        if meta["shapes"]:
            sample.add(Drawn(*(np.asarray(columns[name]).reshape(meta["shapes"][name]) for name in _ARRAYS)), names)
        return sample

    def _cut(self) -> None:
        """Leaves the rows with the smallest ranks."""
        if not self._drawn:
            return
        every = Drawn(*(np.concatenate([getattr(drawn, name) for drawn in self._drawn]) for name in _ARRAYS))
        order = np.argsort(every.ranks, kind="stable")[: self.rows]
        sampled = every.taken(order)
        if len(sampled.ranks) == self.rows:
            self._limit = int(sampled.ranks[-1])
        if sampled.labels.dtype == np.uint64:
            self.names = {key: self.names[key] for key in np.unique(sampled.labels).tolist()}
        self._drawn, self._held = [sampled], len(sampled.ranks)


LEAST = 30  # rows of a class, and of the rest: fewer are not judged
LEAST_SHARE = 1 / 20  # of all rows: a class that a feature tells alone is then worth a warning
_BINS = 32


@dataclasses.dataclass(frozen=True)
class LabelSignal:
    """What a feature alone tells.

    Attributes:
      name: the feature's, or that of a column of a vector.
      measure: "auc" or "correlation".
      value: from 0.5 to 1, or from 0 to 1.
      rows: how many rows it was judged on: all, or those that have a value.
      of: the place of the class that it tells best; -1 for a number.
      overall: the mean of the AUC of all classes, weighted by their rows (Provost and Domingos, 2001).
      classes: those of a share of at least LEAST_SHARE: the place, the AUC and the share of each, the best told first.
    """

    name: str
    measure: str
    value: float
    rows: int
    of: int = -1
    overall: float = 0.0
    classes: tuple[tuple[int, float, float], ...] = ()

    @property
    def most(self) -> float:
        """What it tells about all classes, or about a common one, whichever is more."""
        return max([self.overall, *(auc for _, auc, _ in self.classes)])


def class_signals(
    drawn: Drawn, numbers: Sequence[str], strings: Sequence[str], classes: np.ndarray
) -> Iterator[LabelSignal]:
    """What each feature tells about classes.

    Args:
      drawn: the rows.
      numbers: the names of the features of numbers.
      strings: those of strings.
      classes: int64 `[n]`: the class of each row, from 0 on.
    """
    fitting = (drawn.ranks & np.uint64(1)).astype(bool)
    count = int(classes.max()) + 1
    every = _ClassRows(classes, count, fitting)
    if not len(every.judged):
        return

    def signal(name: str, areas: np.ndarray, present: np.ndarray, *columns: np.ndarray) -> LabelSignal:
        """Of all rows, a missing value being a value, or of those that have one, whichever tells more."""
        of_all, there = every.signal(name, areas), every.of(present)
        if present.all() or not len(there.judged):
            return of_all
        of_present = there.signal(name, there.areas(*(column[None, present] for column in columns))[0])
        return max(of_all, of_present, key=lambda found: found.most)

    step = max(1, _AT_ONCE // max(len(classes), (_BINS + 1) * count))
    for start in range(0, len(numbers), step):
        columns = np.ascontiguousarray(drawn.numbers[:, start : start + step].T)
        codes, bin_counts = bins(columns)
        areas = every.areas(codes, columns)
        for i in np.flatnonzero(bin_counts > 1).tolist():
            yield signal(numbers[start + i], areas[i], ~np.isnan(columns[i]), codes[i], columns[i])
    for place, name in enumerate(strings):
        distinct, codes = np.unique(drawn.codes[:, place], return_inverse=True)
        if len(distinct) > 1:
            yield signal(name, every.areas(codes[None])[0], drawn.codes[:, place] != 0, codes)


class _ClassRows:
    """Rows with their classes, by which columns are judged.

    Attributes:
      judged: the classes that have enough rows, as has the rest.
    """

    def __init__(self, classes: np.ndarray, count: int, fitting: np.ndarray) -> None:
        self.classes, self.count, self.fitting = classes, count, fitting
        sizes = np.bincount(classes, minlength=count)
        self.judged = np.flatnonzero((sizes >= LEAST) & (sizes.sum() - sizes >= LEAST))
        self._shares = sizes[self.judged] / max(sizes.sum(), 1)

    def of(self, rows: np.ndarray) -> _ClassRows:
        """Some of them: bool `[n]`."""
        return _ClassRows(self.classes[rows], self.count, self.fitting[rows])

    def areas(self, codes: np.ndarray, numbers: np.ndarray | None = None) -> np.ndarray:
        """The AUC of each class by columns of codes `[columns, rows]`, and of numbers: float64 `[columns, classes]`."""
        areas = _encoded(codes, self.classes, self.count, self.fitting)
        return areas if numbers is None else np.maximum(_by_rank(numbers, self.classes, self.count), areas)

    def signal(self, name: str, areas: np.ndarray) -> LabelSignal:
        """What a column of these areas tells."""
        best = areas[self.judged]
        place = int(best.argmax())
        large = np.flatnonzero(self._shares >= LEAST_SHARE - 1e-9)
        common = large[np.argsort(-best[large], kind="stable")].tolist()
        return LabelSignal(
            name,
            "auc",
            float(best[place]),
            len(self.classes),
            int(self.judged[place]),
            float(best @ self._shares / self._shares.sum()),
            tuple((int(self.judged[i]), float(best[i]), float(self._shares[i])) for i in common),
        )


_AT_ONCE = 1 << 17  # numbers of an array, so that the work stays in the cache


def bins(values: np.ndarray, most: int = _BINS) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as bins of about as many rows each, or each value as one if they are few; missing ones are the last.

    Args:
      values: `[columns, rows]`, NaN for a missing one.
      most: how many bins a column has at most, without that of the missing ones.

    Returns:
      The bin of each number, int64 `[columns, rows]`, from 0 on; and how many bins there are, int64 `[columns]`.
    """
    order = np.argsort(values, axis=1)  # NaN comes last
    ordered = np.take_along_axis(values, order, 1)
    present = ~np.isnan(ordered)
    begins = _first(ordered) & present
    counts, many = present.sum(1), np.flatnonzero(begins.sum(1) > most)
    if len(many):
        places = (np.linspace(0, 1, most + 1)[1:-1] * (counts[many, None] - 1)).astype(np.int64)
        firsts = np.maximum.accumulate(np.where(begins[many], np.arange(values.shape[1]), 0), axis=1)
        edges = np.zeros((len(many), values.shape[1]), bool)
        np.put_along_axis(edges, np.take_along_axis(firsts, places, 1), True, 1)
        begins[many] = edges
    numbered = np.cumsum(begins, axis=1)
    numbered += ~present & (counts > 0)[:, None]
    numbered -= numbered[:, :1]
    codes = np.empty_like(numbered)
    np.put_along_axis(codes, order, numbered, 1)
    return codes, numbered[:, -1] + 1


def _first(ordered: np.ndarray) -> np.ndarray:
    """Whether each number is the first one of its value: bool, as `ordered`, which rises along axis 1."""
    return np.concatenate([np.ones_like(ordered[:, :1], bool), ordered[:, 1:] != ordered[:, :-1]], axis=1)


def midranks(scores: np.ndarray) -> np.ndarray:
    """The number of rows below each score, and half of that of its equals: float64 `[columns, rows]`, as `scores`."""
    order = np.argsort(scores, axis=1)
    ranks = np.empty(scores.shape)
    first = _first(np.take_along_axis(scores, order, 1))
    np.put_along_axis(ranks, order, _below(np.ones(scores.shape), first), 1)
    return ranks


def _below(weights: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Along axis 1, the weight before each run of equal scores, and half of the run's own.

    Args:
      weights: float64, by ascending score.
      first: bool, of the same shape: whether a score is another one than the one before.
    """
    end = np.cumsum(weights, axis=1)
    start = np.maximum.accumulate(np.where(first, end - weights, 0), axis=1)
    last = np.concatenate([first[:, 1:], np.ones_like(first[:, :1])], axis=1)
    end = np.minimum.accumulate(np.where(last, end, np.inf)[:, ::-1], axis=1)[:, ::-1]
    return (start + end) / 2


def _by_rank(values: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """The AUC of each class, float64 `[columns, classes]`, whichever direction the numbers `[columns, rows]` have.

    Missing ones count as below, and as above all others, whichever tells more.
    """
    missing = np.isnan(values)
    areas = _areas_by_rank(np.where(missing, np.inf, values), classes, count)
    with_gaps = np.flatnonzero(missing.any(axis=1))
    if len(with_gaps):
        below = _areas_by_rank(np.where(missing[with_gaps], -np.inf, values[with_gaps]), classes, count)
        areas[with_gaps] = np.maximum(areas[with_gaps], below)
    return areas


def _areas_by_rank(scores: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """The same of scores, none of which is missing: Mann and Whitney's statistic."""
    by_class, sizes = np.argsort(classes, kind="stable"), np.bincount(classes, minlength=count)
    ranks = np.cumsum(midranks(scores)[:, by_class], axis=1)
    upto = np.concatenate([np.zeros((len(scores), 1)), ranks], axis=1)[:, np.concatenate([[0], np.cumsum(sizes)])]
    both = sizes * (sizes.sum() - sizes)
    with np.errstate(invalid="ignore", divide="ignore"):
        areas = np.where(both > 0, (np.diff(upto, axis=1) - sizes * sizes / 2) / both, 0.5)
    return np.maximum(areas, 1 - areas)


def _encoded(codes: np.ndarray, classes: np.ndarray, count: int, fitting: np.ndarray) -> np.ndarray:
    """The AUC of each class by its share among the rows of a code, measured on some rows and judged on the others.

    `codes` are int64 `[columns, rows]`. Returns float64 `[columns, classes]`.
    """
    size = int(codes.max()) + 1
    fitted = _table(codes[:, fitting], size, classes[fitting], count)
    judged = _table(codes[:, ~fitting], size, classes[~fitting], count)
    whole = fitted.sum(1, keepdims=True)
    shares = (fitted + whole / np.maximum(whole.sum(2, keepdims=True), 1e-300)) / (fitted.sum(2, keepdims=True) + 1)
    order = np.argsort(shares, axis=1)
    first = _first(np.take_along_axis(shares, order, 1))
    negative = judged.sum(2, keepdims=True) - judged
    return _area(np.take_along_axis(judged, order, 1), np.take_along_axis(negative, order, 1), first)


def _table(codes: np.ndarray, size: int, classes: np.ndarray, count: int) -> np.ndarray:
    """float64 `[columns, size, classes]`: the number of rows of each code and class."""
    shape = len(codes), size, count
    places = (np.arange(len(codes))[:, None] * size + codes) * count + classes
    return np.bincount(places.ravel(), minlength=math.prod(shape)).reshape(shape).astype(np.float64)


def _area(positive: np.ndarray, negative: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The AUC of columns: weights by ascending score, of a class and of the rest; 0.5 if one of them is empty.

    Args:
      positive, negative: float64 `[columns, scores, classes]`.
      first: bool, of the same shape: whether a score is another one than that of the row above.
    """
    both = positive.sum(1) * negative.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(both > 0, (positive * _below(negative, first)).sum(1) / both, 0.5)


def errors_avoided(codes: np.ndarray, size: int, classes: np.ndarray, fitting: np.ndarray) -> float:
    """The share of a constant guess's errors that the best guess for each code avoids, on the rows not fitted to."""
    count = int(classes.max()) + 1
    if count < 2 or size * count > 1 << 24:
        return 0.0
    table = _table(codes[None, fitting], size, classes[fitting], count)[0]
    overall = table.sum(axis=0)
    guesses = np.where(table.sum(axis=1) > 0, table.argmax(axis=1), overall.argmax())
    truth = classes[~fitting]
    baseline = int((truth != overall.argmax()).sum())
    if baseline < 10:
        return 0.0
    return 1 - int((guesses[codes[~fitting]] != truth).sum()) / baseline


def number_signals(drawn: Drawn, numbers: Sequence[str], strings: Sequence[str]) -> Iterator[LabelSignal]:
    """What each feature tells about a label that is a number: the larger one of Pearson's and Spearman's correlation.

    Numbers are judged on the rows that have a value. Strings are, too, or on all rows if a missing one tells more.
    """
    labels = drawn.labels
    if len(labels) < LEAST or labels.min() == labels.max():
        return
    fitting = (drawn.ranks & np.uint64(1)).astype(bool)
    for place, name in enumerate(numbers):
        present = ~np.isnan(drawn.numbers[:, place])
        values, truth = drawn.numbers[present, place].astype(np.float64), labels[present]
        if len(values) >= LEAST:
            value = max(correlation(values, truth), rank_correlation(values, truth))
            yield LabelSignal(name, "correlation", value, len(values), overall=value)
    for place, name in enumerate(strings):
        codes, everywhere = drawn.codes[:, place], np.ones(len(labels), bool)
        signals = {
            int(rows.sum()): _correlation_of_means(codes[rows], labels[rows], fitting[rows])
            for rows in (everywhere, codes != 0)
        }
        count = max(signals, key=lambda rows: signals[rows])
        yield LabelSignal(name, "correlation", signals[count], count, overall=signals[count])


def _correlation_of_means(values: np.ndarray, labels: np.ndarray, fitting: np.ndarray) -> float:
    """Of labels, and of the mean label of each value, measured on some rows and judged on the others."""
    distinct, codes = np.unique(values, return_inverse=True)
    rows = np.bincount(codes[fitting], minlength=len(distinct))
    sums = np.bincount(codes[fitting], labels[fitting], minlength=len(distinct))
    means = np.where(rows > 0, sums / np.maximum(rows, 1), labels[fitting].mean() if fitting.any() else 0)
    return correlation(means[codes[~fitting]], labels[~fitting])


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Spearman's, without its sign: 1 if one side is the other, transformed by what rises or falls everywhere."""
    return correlation(midranks(left[None])[0], midranks(right[None])[0])


def correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Pearson's, without its sign; 0 where one side is constant."""
    if len(left) < LEAST:
        return 0.0
    left, right = left - left.mean(), right - right.mean()
    spread = float(np.sqrt((left * left).sum() * (right * right).sum()))
    return min(1.0, abs(float((left * right).sum())) / spread) if spread > 0 else 0.0
