"""Columns that tell the label by themselves, because they were written after it was known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.inference.declaration import Declaration, percent
from schemas.inference.hashing import mix
from schemas.inference.kinds import Column
from schemas.inference.label import LabelChoice
from schemas.inference.row_sample import RowSample

LEAST_ROWS = 100
_BINS = 20  # of numbers
_COPY = 0.98  # of the baseline's errors are gone: the column is the label, written otherwise
_PRESENCE = 0.9  # the same, where it is enough to know whether there is a value
_CLOSE = 0.9  # worth a word
_PURE, _PURE_ROWS, _CHANCE = 0.98, 50, 1e-9
_COPIED_NUMBER = 0.9999  # a correlation


@dataclasses.dataclass(frozen=True)
class Leak:
    """What a column tells. `certain`: it should be ignored; else a person should look at it."""

    position: int
    evidence: str
    certain: bool


def find_leaks(
    columns: Sequence[Column], label: LabelChoice, sample: RowSample, declared: Sequence[Declaration]
) -> list[Leak]:
    """The declarations that predict the label almost without an error, each alone, on rows kept apart for that.

    A one-hot group is taken as one; vectors, of which each column says little, are left out.
    """
    if len(sample) < LEAST_ROWS:
        return []
    target = columns[label.position]
    cells = sample.column(label.position)
    kept = np.flatnonzero(_present(cells, target))
    if len(kept) < LEAST_ROWS:
        return []
    fitting = (mix(sample.hashes[kept]) & np.uint64(1)).astype(bool)
    take = pa.array(kept)
    classes = None if label.kind == "numeric" else _codes(cells.take(take))
    truth = _numbers(cells.take(take)) if classes is None else np.empty(0)
    found = []
    for each in declared:
        column = columns[each.first]
        if not column.present or column.constant:
            continue
        if each.kind == "one_hot" and classes is not None:
            ones = [_codes_of_one(sample.column(i).take(take)) for i in range(each.first, each.last + 1)]
            found.append(_judged(each.first, np.argmax(ones, axis=0), classes, fitting))
        elif each.width == 1 and classes is not None:
            found.append(_tells(column, sample.column(each.first).take(take), classes, fitting))
        elif each.width == 1 and column.numeric:
            found.append(_copy_of_number(column, _numbers(sample.column(each.first).take(take)), truth))
    return [leak for leak in found if leak is not None]


def _codes_of_one(cells: pa.BinaryArray) -> np.ndarray:
    return _numbers(cells) == 1


def _present(cells: pa.BinaryArray, column: Column) -> np.ndarray:
    tokens = pa.array([token.encode() for token in column.tokens], pa.binary())
    return ~np.asarray(pc.is_in(_trim(cells), value_set=tokens))


def _trim(cells: pa.BinaryArray) -> pa.BinaryArray:
    text = pa.StringArray.from_buffers(len(cells), *cells.buffers()[1:], None, 0, cells.offset)
    return pc.ascii_trim_whitespace(text).view(pa.binary())


def _codes(cells: pa.BinaryArray) -> np.ndarray:
    return _trim(cells).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(cells: pa.BinaryArray) -> np.ndarray:
    """float64 `[n]`, NaN for what is no number."""
    encoded = _trim(cells).dictionary_encode()
    values = np.array([_number(value) for value in encoded.dictionary.to_pylist()], np.float64)
    return values[encoded.indices.to_numpy(zero_copy_only=False)]


def _number(value: bytes) -> float:
    try:
        found = float(value)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan


def _copy_of_number(column: Column, values: np.ndarray, truth: np.ndarray) -> Leak | None:
    both = np.isfinite(values) & np.isfinite(truth)
    if both.sum() < LEAST_ROWS or not values[both].std() or not truth[both].std():
        return None
    correlation = abs(float(np.corrcoef(values[both], truth[both])[0, 1]))
    if correlation < _COPIED_NUMBER:
        return None
    return Leak(column.position, f"tells the label: their correlation is {correlation:.5f}", certain=True)


def _tells(column: Column, cells: pa.BinaryArray, classes: np.ndarray, fitting: np.ndarray) -> Leak | None:
    present = _present(cells, column)
    if column.missing and not present.all() and present.any():
        there = present.astype(np.int64)
        gone = _errors_gone(there, classes, fitting)
        if gone >= _PRESENCE:
            evidence = f"tells the label: whether there is a value predicts it, {percent(gone, 1)} of the errors gone"
            return Leak(column.position, evidence, certain=True)
        if column.missing > 0.2 * column.rows:
            for side, what in ((present, "a value is there"), (~present, "it is missing")):
                if (share := _purity(classes, side)) is not None:
                    evidence = f"tells the label: where {what}, {percent(share, 1)} of the records are of one class"
                    return Leak(column.position, evidence, certain=True)
    return _judged(column.position, _binned(column, cells, present), classes, fitting)


def _judged(position: int, codes: np.ndarray, classes: np.ndarray, fitting: np.ndarray) -> Leak | None:
    gone = _errors_gone(codes, classes, fitting)
    if gone >= _COPY:
        return Leak(
            position, f"tells the label: alone it predicts {percent(gone, 1)} of what a guess misses", certain=True
        )
    if gone >= _CLOSE:
        evidence = f"alone it predicts {percent(gone, 1)} of what a guess of the label misses: is it known beforehand?"
        return Leak(position, evidence, certain=False)
    return None


def _binned(column: Column, cells: pa.BinaryArray, present: np.ndarray) -> np.ndarray:
    """A small number for each row: its value, or of many numbers, the bin; missing is one of its own."""
    if not (column.numeric and column.distinct > _BINS):
        return _codes(cells)
    values = _numbers(cells)
    good = present & np.isfinite(values)
    if not good.any():
        return np.zeros(len(values), np.int64)
    edges = np.unique(np.quantile(values[good], np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.where(good, np.searchsorted(edges, np.where(good, values, 0), side="right") + 1, 0).astype(np.int64)


def _errors_gone(codes: np.ndarray, classes: np.ndarray, fitting: np.ndarray) -> float:
    """The share of a constant guess's errors that the best guess for each code avoids, on the rows not fitted to."""
    count = int(classes.max()) + 1
    if count < 2 or int(codes.max() + 1) * count > 1 << 24:
        return 0.0
    table = np.bincount(codes[fitting] * count + classes[fitting], minlength=int(codes.max() + 1) * count)
    table = table.reshape(-1, count)
    overall = table.sum(axis=0)
    guesses = np.where(table.sum(axis=1) > 0, table.argmax(axis=1), overall.argmax())
    truth = classes[~fitting]
    baseline = int((truth != overall.argmax()).sum())
    if baseline < 10:
        return 0.0
    return 1 - int((guesses[codes[~fitting]] != truth).sum()) / baseline


def _purity(classes: np.ndarray, side: np.ndarray) -> float | None:
    """The share of the commonest class on one side, where it is nearly all of them and no accident."""
    rows = int(side.sum())
    if rows < _PURE_ROWS:
        return None
    counts = np.bincount(classes[side])
    share = counts.max() / rows
    usual = float((classes == counts.argmax()).mean())
    return float(share) if share >= _PURE and usual < 0.95 and usual**rows < _CHANCE else None
