"""What is described of raw data, column by column: which columns there are, and the statistics of their values."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv import values as csv_values
from schemas.profile.sketches import (
    RANK_DEVIATION,
    Countable,
    Distinct,
    Frequent,
    Quantiles,
    Sizes,
    places_held,
    summed,
)
from schemas.spec.features import CategoryLabel, Feature, Key, Label, OneHot, ReadAsNumbers, Weight
from schemas.spec.table import SPLITS, Schema, raw_columns

Role = Literal["feature", "label", "weight", "key"]
RAW = "_raw:"  # how the columns are called that travel with a batch for the statistics alone
POOLED = 4096  # a vector of more columns is described as one column
Moments: TypeAlias = tuple[int, float, float, int]  # of numbers: count, mean, deviations, and how many are 0
Counted: TypeAlias = tuple[Countable, np.ndarray]  # distinct values, and how often each of them occurs


@dataclasses.dataclass(frozen=True)
class Column:
    """A raw column, a list column of a batch.

    Attributes:
      name: the column's name in a batch, without RAW.
      reads: what its lists hold: numbers, one string, or the 0s and 1s of a one-hot group. A column of pixels stands
        for those of an image's sums, whose names begin with its own; see `Statistics.channels`.
      kind: what the schema calls it, such as numeric.
      names: what is described: one name, or one for each number of a vector.
      values: the values that the places of a one-hot group stand for.
      missing: the strings that mean a missing value.
    """

    name: str
    reads: Literal["numbers", "strings", "one_hot", "pixels"]
    kind: str
    role: Role
    names: tuple[str, ...]
    values: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The columns of rows: every feature that is decoded, then the label. `ignore`d columns are not."""
    return tuple(_columns(schema))


def _columns(schema: Schema) -> Iterator[Column]:
    for item in schema.items:
        if item.raw is None:
            continue
        refs = tuple(str(ref) for ref in item.refs)
        role = _role(item, schema)
        if isinstance(item, OneHot):
            yield Column(item.name, "one_hot", item.kind, role, (item.name,), values=refs)
        elif isinstance(item, ReadAsNumbers):
            vector = 1 < item.width <= POOLED
            names = tuple(f"{item.name}[{ref}]" for ref in refs) if vector else (item.name,)
            yield Column(item.name, "numbers", item.kind, role, names)
        else:  # a category label is stored as its class: the tokens of missing values have been dealt with
            missing = () if isinstance(item, CategoryLabel) else item.tokens(schema.csv.missing)
            yield Column(item.name, "strings", item.kind, role, (item.name,), missing=missing)


def _role(item: Feature | Label, schema: Schema) -> Role:
    if item is schema.label:
        return "label"
    return "key" if isinstance(item, Key) else "weight" if isinstance(item, Weight) else "feature"


def raw_names(schema: Schema) -> tuple[str, ...]:
    """What the columns of `columns_of` are called while they travel beside the features."""
    return tuple(RAW + column.name for column in raw_columns(schema))


def raw_apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """A batch without the columns that are RAW, and these under their own names."""
    raw = [name for name in batch.schema.names if name.startswith(RAW)]
    rest = batch.select([name for name in batch.schema.names if not name.startswith(RAW)])
    return rest, batch.select(raw).rename_columns([name.removeprefix(RAW) for name in raw])


class RawBatch:
    """The raw columns of records, each of them encoded once for all who look at it.

    Attributes:
      rows: how many records there are.
      values: of each column, those of all records together.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.rows = batch.num_rows
        self.values = {name: column.flatten() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        self._encoded: dict[str, csv_values.Distinct] = {}

    @staticmethod
    def of(batch: pa.RecordBatch | RawBatch) -> RawBatch:
        """The batch itself, if it is one."""
        return batch if isinstance(batch, RawBatch) else RawBatch(batch)

    def matrix(self, name: str) -> np.ndarray:
        """Numbers: float32 `[rows, width]`."""
        return np.asarray(self.values[name]).astype(np.float32, copy=False).reshape(self.rows, -1)

    def encoded(self, column: Column) -> csv_values.Distinct:
        """Strings, or the values that the 1s of a one-hot group stand for: by their places among the distinct ones."""
        if column.name not in self._encoded:
            self._encoded[column.name] = self._encode(column)
        return self._encoded[column.name]

    def _encode(self, column: Column) -> csv_values.Distinct:
        if column.reads == "one_hot":
            ones: np.ndarray = self.matrix(column.name) == 1
            names = pa.array([value.encode() for value in column.values], pa.binary())
            return csv_values.Distinct(ones.argmax(1).astype(np.int32), names, names, np.zeros(len(names), bool))
        return csv_values.distinct(self.values[column.name], csv_values.missing_tokens(column.missing).tokens)


@dataclasses.dataclass
class Values:
    """What is known of the values of one column in one split.

    While all values are held with their counts, the sketches would follow from these, and are empty.

    Attributes:
      count: the values that are not missing.
      missing: the others.
    """

    distinct: Distinct
    frequent: Frequent
    count: int = 0
    missing: int = 0

    @property
    def known(self) -> bool:
        """Whether all values are held."""
        return self.frequent.exact

    @property
    def counted(self) -> Counted | None:
        """All values and their counts; None if not all are held."""
        return (self.frequent.values, self.frequent.counts) if self.known else None

    def _sketch(self, *added: Counted | None) -> None:
        """If not all values are held any more, adds to the sketches: those that were, and those that came."""
        if not self.known:
            for values, counts in filter(None, added):
                if len(values):
                    self._add_to_sketches(values, counts)

    def _add_to_sketches(self, values: Countable, counts: np.ndarray) -> None:
        self.distinct.add(values)

    def distinct_values(self) -> dict[str, Any]:
        """How many values there are, as JSON values."""
        count = len(self.frequent.values) if self.known else self.distinct.count
        return {"distinct": count, "distinct_exact": self.known or self.distinct.exact}


@dataclasses.dataclass
class Numbers(Values):
    """What is known of the float32 values of one column in one split.

    Attributes:
      mean: in float64.
      deviations: the sum of squared deviations from the mean. Parts are joined with the formula of Chan, Golub and
        LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
      low, high: the least and the greatest value; infinite while there is none.
      zeros: how many are 0.
    """

    quantiles: Quantiles = dataclasses.field(default_factory=Quantiles)
    mean: float = 0.0
    deviations: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    zeros: int = 0

    @staticmethod
    def empty(sizes: Sizes) -> Numbers:
        """Nothing seen yet."""
        return Numbers(Distinct(sizes.distinct), Frequent(sizes.frequent, np.empty(0, np.float32)))

    def take(self, values: np.ndarray, counts: np.ndarray, moments: Moments) -> None:
        """Adds values, each of which occurred this often.

        Args:
          values: float32 `[n]`, rising.
          counts: int64 `[n]`.
          moments: of all of them.
        """
        before = self.counted
        count, mean, deviations, zeros = moments
        self.join(count, mean, deviations)
        self.low, self.high = min(self.low, float(values[0])), max(self.high, float(values[-1]))
        self.zeros += zeros
        self.frequent.add(values, counts)
        self._sketch(before, (values, counts))

    def merge(self, other: Numbers) -> None:
        """Adds what the other one has seen."""
        before, added = self.counted, other.counted
        self.missing += other.missing
        self.join(other.count, other.mean, other.deviations)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.zeros += other.zeros
        self.frequent.merge(other.frequent)
        self._sketch(before, added)
        if added is None:
            self.distinct.merge(other.distinct)
            self.quantiles.merge(other.quantiles)

    def _add_to_sketches(self, values: Countable, counts: np.ndarray) -> None:
        places, sizes = places_held(int(counts.sum()))
        self.quantiles.add(values[np.searchsorted(np.cumsum(counts), places, "right")], sizes)
        self.distinct.add(as_binary(values))

    def join(self, count: int, mean: float, deviations: float) -> None:
        """Adds the moments of values."""
        if not count:
            return
        total = self.count + count
        delta = mean - self.mean
        self.mean += delta * count / total
        self.deviations += deviations + delta * delta * self.count * count / total
        self.count = total

    @property
    def std(self) -> float:
        """The population's standard deviation, as tf.Transform's z-score uses it."""
        return math.sqrt(max(self.deviations, 0.0) / self.count) if self.count else math.nan

    @property
    def quantiles_exact(self) -> bool:
        """Whether quantiles and histogram are exact, and not within the rank error of the sketch."""
        return self.known or self.quantiles.exact

    @property
    def rank_deviation(self) -> float:
        """The standard deviation of the share of the values that are at most some number; 0 if it is exact."""
        return 0.0 if self.quantiles_exact else RANK_DEVIATION

    @property
    def held(self) -> tuple[np.ndarray, np.ndarray]:
        """The known values, float32 `[n]` in any order, and how many each stands for, int64 `[n]`."""
        if self.known:
            return self.frequent.values, self.frequent.counts
        return self.quantiles.items, self.quantiles.weights


_AT_ONCE = 1 << 18  # numbers whose moments are computed at once
_TILE = 16  # columns whose numbers are counted at once, so that the counts stay in the cache


def add_numbers(summaries: Sequence[Numbers], matrix: np.ndarray) -> None:
    """Adds a row of float32 `[summaries, n]` to each summary; rows are sorted, without NaN."""
    columns, count = matrix.shape
    if not count or not columns:
        return
    moments: list[tuple[float, float, int]] = []
    step = max(1, _AT_ONCE // count)
    for start in range(0, columns, step):
        wide = matrix[start : start + step].astype(np.float64)
        means = wide.mean(1)
        wide -= means[:, None]
        squares = np.square(wide, out=wide).sum(1)  # a dot product would start BLAS's threads
        zeros = (matrix[start : start + step] == 0).sum(1)
        moments += zip(means.tolist(), squares.tolist(), zeros.tolist(), strict=True)
    last = np.ones(matrix.shape, bool)  # where a value stands last in its row
    np.not_equal(matrix[:, 1:], matrix[:, :-1], out=last[:, :-1])
    ends = np.flatnonzero(last)
    values, counts = matrix.ravel()[ends], np.diff(ends, prepend=-1)
    values += np.float32(0)  # -0 is 0
    stops = np.cumsum(last.sum(1)).tolist()
    for summary, (mean, deviations, zeros), (start, stop) in zip(
        summaries, moments, itertools.pairwise([0, *stops]), strict=True
    ):
        summary.take(values[start:stop], counts[start:stop], (count, mean, deviations, zeros))


WHOLE = 256  # whole numbers from 0 on, which need not be sorted


def tally(
    parts: Sequence[np.ndarray], rows: Mapping[int, Sequence[np.ndarray]], width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the numbers of the columns that hold whole numbers below WHOLE alone.

    Args:
      parts: float32 `[rows, columns]`; all columns are one if `width` is 1.
      rows: by split, which rows of each part are in it.
      width: how many columns are told apart.

    Returns:
      Whether each column is one of these, bool `[width]`; and of those that are, how often each number occurs, int64
      `[splits, columns, WHOLE]`.
    """
    whole, cells = np.ones(width, bool), []
    for part in (parts[0][:1], *parts):
        with np.errstate(invalid="ignore"):
            cells.append(part.astype(np.uint8))
        whole &= (cells[-1] == part).all(0).reshape(width, -1).all(1)
        if not whole.any():
            return whole, np.empty((len(SPLITS), 0, WHOLE), np.int64)
    found = np.zeros((len(SPLITS), width, WHOLE), np.int64)
    for place, part in enumerate(cells[1:]):
        for split, places in rows.items():
            some = part.take(places[place], axis=0).reshape(-1, width, part.shape[1] // width)
            for start in range(0, width, _TILE):  # others are counted, too: to leave them out takes longer
                codes = some[:, start : start + _TILE] + WHOLE * np.arange(min(_TILE, width - start))[:, None]
                shape = codes.shape[1], WHOLE
                counted = np.bincount(codes.ravel(), minlength=math.prod(shape)).reshape(shape)
                found[split, start : start + _TILE] += counted
    return whole, found[:, whole]


def add_tallied(summaries: Sequence[Numbers], counts: np.ndarray) -> None:
    """Adds whole numbers to each summary, by how often each of them occurred: int64 `[summaries, WHOLE]`, some."""
    numbers = np.arange(WHOLE)
    total, sums, squares = counts.sum(1), counts @ numbers, counts @ (numbers * numbers)
    held = counts > 0
    values, often = np.nonzero(held)[1].astype(np.float32), counts[held]
    stops = np.cumsum(held.sum(1)).tolist()
    moments = zip(*(some.tolist() for some in (total, sums, squares, counts[:, 0])), strict=True)
    for summary, (count, first, second, zeros), (start, stop) in zip(
        summaries, moments, itertools.pairwise([0, *stops]), strict=True
    ):
        deviations = (count * second - first * first) / count  # exact up to the division
        summary.take(values[start:stop], often[start:stop], (count, first / count, deviations, zeros))


def as_binary(values: np.ndarray) -> pa.BinaryArray:
    """Numbers `[n]` as strings of their bytes, without copying them."""
    size = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * size, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


CUT = 100  # bytes: longer strings are cut before they are counted as frequent values


@dataclasses.dataclass
class Strings(Values):
    """What is known of the strings of one column in one split.

    Attributes:
      characters: the sum of their lengths, in characters.
      shortest, longest: in characters; -1 while there is none.
    """

    characters: int = 0
    shortest: int = -1
    longest: int = -1

    @staticmethod
    def empty(sizes: Sizes) -> Strings:
        """Nothing seen yet."""
        return Strings(Distinct(sizes.distinct), Frequent(sizes.frequent, pa.nulls(0, pa.binary())))

    def add(self, values: pa.BinaryArray, counts: np.ndarray, missing: int) -> None:
        """Adds values.

        Args:
          values: distinct ones, binary `[n]`.
          counts: int64 `[n]`: how often each of them occurred, once or more often.
          missing: how many are missing beside them.
        """
        self.missing += missing
        if not len(values):
            return
        before, added = self.counted, (values, counts)
        lengths = np.asarray(_lengths(values), np.int64)
        self._join(int(counts.sum()), int((lengths * counts).sum()), int(lengths.min()), int(lengths.max()))
        if _longest(values) > CUT:
            values, counts = summed(pc.binary_slice(values, 0, CUT), counts)  # a character may be cut apart
        self.frequent.add(values, counts)
        self._sketch(before, added)

    def merge(self, other: Strings) -> None:
        """Adds what the other one has seen."""
        before, added = self.counted, other.counted
        self.missing += other.missing
        if other.count:
            self._join(other.count, other.characters, other.shortest, other.longest)
        self.frequent.merge(other.frequent)
        self._sketch(before, added)
        if added is None:
            self.distinct.merge(other.distinct)

    @property
    def known(self) -> bool:
        """Whether all values are held, none of them cut: a character has 4 bytes at most."""
        return self.frequent.exact and self.longest < CUT // 4

    @property
    def counts(self) -> dict[bytes, int]:
        """How often each value occurs; if not all values are known, those that are frequent."""
        return dict(zip(self.frequent.values.to_pylist(), self.frequent.counts.tolist(), strict=True))

    def _join(self, count: int, characters: int, shortest: int, longest: int) -> None:
        self.shortest = shortest if not self.count else min(self.shortest, shortest)
        self.longest = max(self.longest, longest)
        self.count += count
        self.characters += characters

    def describe(self, top: int) -> dict[str, Any]:
        """The statistics as JSON values. `top`: how many frequent values are listed."""
        told: dict[str, Any] = {"count": self.count, "missing": self.missing}
        if not self.count:
            return told
        return told | {
            **self.distinct_values(),
            "length": {"mean": self.characters / self.count, "min": self.shortest, "max": self.longest},
            "top_values": [
                {"value": value.decode(errors="replace"), "count": count} for value, count in self.frequent.top(top)
            ],
            "top_values_error": self.frequent.error,
        }


def _lengths(values: pa.BinaryArray) -> pa.Array:
    """In characters; in bytes where a value is not UTF-8."""
    try:
        return pc.utf8_length(values.cast(pa.string()))
    except pa.ArrowInvalid:
        return pc.binary_length(values)


def _longest(values: pa.BinaryArray) -> int:
    return int(pc.max(pc.binary_length(values)).as_py())


NAMES = ("red", "green", "blue")


@dataclasses.dataclass
class Channels:
    """The pixels of the stored images of a split.

    Attributes:
      pixels: how many there are.
      sums, squares: of each channel's values, 0 to 255, and of their squares.
    """

    pixels: int = 0
    sums: tuple[int, ...] = (0, 0, 0)
    squares: tuple[int, ...] = (0, 0, 0)

    def add(self, pixels: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> None:
        """Adds images: int64 `[n]`, `[n, 3]` and `[n, 3]`."""
        self.merge(Channels(int(pixels.sum()), tuple(sums.sum(0).tolist()), tuple(squares.sum(0).tolist())))

    def merge(self, other: Channels) -> None:
        """Adds the other one's pixels."""
        self.pixels += other.pixels
        self.sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        self.squares = tuple(a + b for a, b in zip(self.squares, other.squares, strict=True))

    def describe(self) -> dict[str, Any]:
        """Mean and standard deviation of each channel over all pixels, from 0 to 255; empty without pixels."""
        if not self.pixels:
            return {}
        told = {}
        for name, total, squares in zip(NAMES, self.sums, self.squares, strict=True):
            variance = (squares * self.pixels - total * total) / (self.pixels * self.pixels)  # exact up to the division
            told[name] = {"mean": total / self.pixels, "std": math.sqrt(variance)}
        return told
