"""What each column alone tells about the label, on a sample of rows: for jobs that look for leakage, and for `init`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

LEAST = 30  # rows of a class, and of the rest: fewer are not judged
LEAST_SHARE = 1 / 20  # of all rows: a class that a feature tells alone is then worth a warning
_BINS = 32
_AT_ONCE = 1 << 17  # numbers of an array, so that the work stays in the cache
_LARGEST_TABLE = 1 << 23  # values times classes: a column of more distinct values tells nothing
_LEAST_ERRORS = 10  # of a constant guess: how many of fewer are avoided is chance


@dataclasses.dataclass(frozen=True)
class SampledRows:
    """Rows in random order.

    Attributes:
      labels: `[n]`: float64 numbers, or int64 classes from 0 on.
      numbers: float32 `[n, width]`: the columns of numbers, side by side; NaN for a missing one.
      codes: uint64 `[n, columns]`: hashes of strings, 0 for a missing one.
      fitting: bool `[n]`: the random half on which guesses are fitted; they are judged on the other half.
    """

    labels: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray
    fitting: np.ndarray


@dataclasses.dataclass(frozen=True)
class LabelSignal:
    """What a column alone tells.

    Attributes:
      name: the feature's, or that of a column of a vector.
      measure: "auc" or "correlation".
      value: from 0.5 to 1, or from 0 to 1.
      rows: how many rows it was judged on: all, or those that have a value.
      of: the place of the class that it tells best; -1 for a number.
      overall: the mean of the AUC of all classes, weighted by their rows (Provost and Domingos, 2001).
      classes: those of a share of at least LEAST_SHARE: the place, the AUC and the share of each, the best told first.
      errors_avoided: the share of a constant guess's errors that the best guess for each value avoids.
    """

    name: str
    measure: str
    value: float
    rows: int
    of: int = -1
    overall: float = 0.0
    classes: tuple[tuple[int, float, float], ...] = ()
    errors_avoided: float = 0.0

    @property
    def most(self) -> float:
        """What it tells about all classes, or about a common one, whichever is more."""
        return max([self.overall, *(auc for _, auc, _ in self.classes)])


def label_signals(rows: SampledRows, numbers: Sequence[str], strings: Sequence[str]) -> Iterator[LabelSignal]:
    """What each column tells about the label; nothing of columns that have one value, or of a label too rare to judge.

    A missing value counts as a value, or the rows that have one are judged alone, whichever tells more.

    Args:
      rows: the sample.
      numbers: the names of the columns of numbers.
      strings: those of strings.
    """
    if rows.labels.dtype == np.int64:
        return _class_signals(rows, numbers, strings)
    return _number_signals(rows, numbers, strings)


def _class_signals(rows: SampledRows, numbers: Sequence[str], strings: Sequence[str]) -> Iterator[LabelSignal]:
    classes = rows.labels
    count = int(classes.max()) + 1
    every = _ClassRows(classes, count, rows.fitting)
    if not len(every.judged):
        return

    def signal(
        name: str, told: _Told, present: np.ndarray, codes: np.ndarray, values: np.ndarray | None = None
    ) -> LabelSignal:
        of_all, there = every.signal(name, told), every.of(present)
        if present.all() or not len(there.judged):
            return of_all
        numbers = None if values is None else values[None, present]
        of_present = there.signal(name, there.told(codes[None, present], numbers)[0])
        return max(of_all, of_present, key=lambda signal: signal.most)

    step = max(1, _AT_ONCE // max(len(classes), (_BINS + 1) * count))
    for start in range(0, len(numbers), step):
        columns = np.ascontiguousarray(rows.numbers[:, start : start + step].T)
        codes, bin_counts = bins(columns)
        told = every.told(codes, columns)
        for i in np.flatnonzero(bin_counts > 1).tolist():
            yield signal(numbers[start + i], told[i], ~np.isnan(columns[i]), codes[i], columns[i])
    for place, name in enumerate(strings):
        distinct, codes = np.unique(rows.codes[:, place], return_inverse=True)
        if len(distinct) > 1 and len(distinct) * count <= _LARGEST_TABLE:
            yield signal(name, every.told(codes[None])[0], rows.codes[:, place] != 0, codes)


_Told = tuple[np.ndarray, float]  # of a column: the AUC of each class, and the share of errors avoided


class _ClassRows:
    """Rows with their classes, by which columns are judged.

    Attributes:
      judged: the classes that have enough rows, as has the rest.
    """

    def __init__(self, classes: np.ndarray, count: int, fitting: np.ndarray) -> None:
        self._classes, self._count, self._fitting = classes, count, fitting
        sizes = np.bincount(classes, minlength=count)
        self.judged = np.flatnonzero((sizes >= LEAST) & (sizes.sum() - sizes >= LEAST))
        self._shares = sizes[self.judged] / max(sizes.sum(), 1)

    def of(self, rows: np.ndarray) -> _ClassRows:
        """Those of bool `[n]`."""
        return _ClassRows(self._classes[rows], self._count, self._fitting[rows])

    def told(self, codes: np.ndarray, numbers: np.ndarray | None = None) -> list[_Told]:
        """What columns of codes `[columns, rows]` tell, and their numbers by their order."""
        areas, avoided = _by_code(codes, self._classes, self._count, self._fitting)
        if numbers is not None:
            areas = np.maximum(_by_rank(numbers, self._classes, self._count), areas)
        return list(zip(areas, avoided.tolist(), strict=True))

    def signal(self, name: str, told: _Told) -> LabelSignal:
        """What a column tells."""
        areas, avoided = told
        best = areas[self.judged]
        place = int(best.argmax())
        large = np.flatnonzero(self._shares >= LEAST_SHARE - 1e-9)
        common = large[np.argsort(-best[large], kind="stable")].tolist()
        return LabelSignal(
            name,
            "auc",
            float(best[place]),
            len(self._classes),
            int(self.judged[place]),
            float(best @ self._shares / self._shares.sum()),
            tuple((int(self.judged[i]), float(best[i]), float(self._shares[i])) for i in common),
            avoided,
        )


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


def _by_code(codes: np.ndarray, classes: np.ndarray, count: int, fitting: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What codes tell, measured on the rows of `fitting` and judged on the others.

    `codes` are int64 `[columns, rows]`.

    Returns:
      The AUC of each class by its share among the rows of a code, float64 `[columns, classes]`; and how much smaller
      than a constant guess's the errors of the best guess for each code are, float64 `[columns]`.
    """
    size = int(codes.max()) + 1
    fitted = _table(codes[:, fitting], size, classes[fitting], count)
    judged = _table(codes[:, ~fitting], size, classes[~fitting], count)
    whole = fitted.sum(1, keepdims=True)
    sizes = fitted.sum(2, keepdims=True)
    shares = (fitted + whole / np.maximum(whole.sum(2, keepdims=True), 1e-300)) / (sizes + 1)
    order = np.argsort(shares, axis=1)
    first = _first(np.take_along_axis(shares, order, 1))
    negative = judged.sum(2, keepdims=True) - judged
    areas = _area(np.take_along_axis(judged, order, 1), np.take_along_axis(negative, order, 1), first)
    usual = int(whole[0, 0].argmax())
    guesses = np.where(sizes > 0, fitted.argmax(2)[:, :, None], usual)
    right = np.take_along_axis(judged, guesses, 2).sum((1, 2))
    usually_right = judged[:, :, usual].sum(1)
    errors = (~fitting).sum() - usually_right
    avoided = np.where(errors >= _LEAST_ERRORS, (right - usually_right) / np.maximum(errors, 1), 0)
    return areas, avoided


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


def _number_signals(rows: SampledRows, numbers: Sequence[str], strings: Sequence[str]) -> Iterator[LabelSignal]:
    """The larger one of Pearson's and Spearman's correlation; of strings, that of the mean label of each."""
    labels, fitting = rows.labels, rows.fitting
    if len(labels) < LEAST or labels.min() == labels.max():
        return
    for place, name in enumerate(numbers):
        present = ~np.isnan(rows.numbers[:, place])
        values, truth = rows.numbers[present, place].astype(np.float64), labels[present]
        if len(values) >= LEAST:
            value = max(correlation(values, truth), rank_correlation(values, truth))
            yield LabelSignal(name, "correlation", value, len(values), overall=value)
    for place, name in enumerate(strings):
        codes, everywhere = rows.codes[:, place], np.ones(len(labels), bool)
        signals = {
            int(part.sum()): _correlation_of_means(codes[part], labels[part], fitting[part])
            for part in (everywhere, codes != 0)
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
