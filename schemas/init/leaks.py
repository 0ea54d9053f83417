"""Columns that give the label away, by `schemas.profile.label_leaks` on a sample of the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.values import as_text
from schemas.init.columns import Column, percent
from schemas.init.kinds import Declaration
from schemas.init.label import LabelChoice
from schemas.profile.duplicates import HASH, RecordHashes, value_hashes
from schemas.profile.label_leaks import LabelSignal, SampledRows, label_signals
from schemas.profile.raw_columns import numbers_of
from schemas.spec.split_hash import mix

LEAST_ROWS = 100
_COPY = 0.98  # of a constant guess's errors are avoided: the column is the label, written otherwise
_PRESENCE = 0.9  # the same, where it is enough to know whether there is a value
_CLOSE = 0.9  # worth a word
_COPIED_NUMBER = 0.9999  # a correlation
_PURE, _PURE_ROWS, _CHANCE = 0.98, 50, 1e-9
TELLS = "tells the label"
_PRESENT = " present"
_BY_NUMBER = 20  # distinct numbers: of fewer, each is a value of its own


@dataclasses.dataclass(frozen=True)
class Leak:
    """What a column tells. `certain`: it should be ignored; else a person should look at it."""

    evidence: str
    certain: bool


def find_leaks(
    columns: Sequence[Column], label: LabelChoice, sample: RecordHashes, declared: Sequence[Declaration]
) -> dict[int, Leak]:
    """The declarations that predict the label almost without an error, each alone, by their first columns.

    A one-hot group is taken as one; vectors, of which each column says little, are left out.
    """
    table, labels = _with_label(sample.table, columns[label.position], numbers=label.kind == "numeric")
    if table.num_rows < LEAST_ROWS:
        return {}
    numbers: dict[str, np.ndarray] = {}
    codes: dict[str, np.ndarray] = {}  # also, by name and _PRESENT, whether there is a value
    present = {}
    for declaration in declared:
        name, column = str(declaration.first), columns[declaration.first]
        if declaration.kind == "one_hot":
            ones = [_numbers(_cells(table, i)) == 1 for i in range(declaration.first, declaration.last + 1)]
            codes[name] = np.argmax(ones, axis=0) + 1
        elif declaration.width == 1 and column.present and not column.constant:
            cells = _cells(table, declaration.first)
            there = present[name] = _present(cells, column)
            if column.numeric and (label.kind == "numeric" or column.distinct > _BY_NUMBER):
                numbers[name] = np.where(there, _numbers(cells), np.nan).astype(np.float32)
            else:
                codes[name] = np.where(there, value_hashes(cells.view(pa.binary())), np.uint64(0))
            if not there.all() and label.kind == "category":
                codes[name + _PRESENT] = there + 1
    rows = SampledRows(
        labels,
        np.column_stack([np.empty((len(labels), 0), np.float32), *numbers.values()]),
        np.column_stack([np.empty((len(labels), 0), np.uint64), *(code.astype(np.uint64) for code in codes.values())]),
        (mix(np.asarray(table.column(HASH))) & np.uint64(1)).astype(bool),
    )
    signals = {signal.name: signal for signal in label_signals(rows, [*numbers], [*codes])}
    leaks = {}
    for name in [*numbers, *codes]:
        of_classes = label.kind == "category" and not name.endswith(_PRESENT)
        leak = _of_presence(signals.get(name + _PRESENT))
        leak = leak or (_one_class(labels, present[name]) if of_classes and name in present else None)
        leak = leak or _of_values(signals.get(name), len(labels))
        if leak is not None and not name.endswith(_PRESENT):
            leaks[int(name)] = leak
    return leaks


def _of_presence(signal: LabelSignal | None) -> Leak | None:
    if signal is None or signal.errors_avoided < _PRESENCE:
        return None
    return Leak(f"{TELLS}: a guess by whether it has a value alone {_less_often(signal)}", certain=True)


def _of_values(signal: LabelSignal | None, rows: int) -> Leak | None:
    if signal is None:
        return None
    among = f" (among the {signal.rows:,} of {rows:,} sampled records that have a value)" if signal.rows < rows else ""
    if signal.measure == "correlation" and signal.value >= _COPIED_NUMBER:
        return Leak(f"{TELLS}: their correlation is {signal.value:.5f}{among}", certain=True)
    if signal.errors_avoided >= _COPY:
        return Leak(f"{TELLS}: a guess by it alone {_less_often(signal)}{among}", certain=True)
    if signal.errors_avoided >= _CLOSE:
        guess = f"a guess of the label by it alone {_less_often(signal)}: is it known before the label is?{among}"
        return Leak(guess, certain=False)
    return None


def _less_often(signal: LabelSignal) -> str:
    return f"is wrong {percent(signal.errors_avoided, 1)} less often than one without it"


def _one_class(classes: np.ndarray, present: np.ndarray) -> Leak | None:
    """That the rows with a value, or those without one, are nearly all of one class, and not by chance."""
    for side, what in ((present, "it has a value"), (~present, "it has none")):
        if side.sum() >= _PURE_ROWS and not side.all() and present.mean() < 0.8:
            counts = np.bincount(classes[side])
            usual = float((classes == counts.argmax()).mean())
            share = float(counts.max() / side.sum())
            if share >= _PURE and usual < 0.95 and usual ** side.sum() < _CHANCE:
                evidence = f"{TELLS}: where {what}, {percent(share, 1)} of the records are of one class"
                return Leak(evidence, certain=True)
    return None


def _with_label(table: pa.Table, label: Column, *, numbers: bool) -> tuple[pa.Table, np.ndarray]:
    """The rows that have a label; and their labels, float64 numbers or int64 classes."""
    cells = _cells(table, label.position)
    values = _numbers(cells) if numbers else value_hashes(cells.view(pa.binary()))
    there = _present(cells, label) & ~(np.isnan(values) if numbers else np.zeros(len(values), bool))
    labels = values[there] if numbers else np.unique(values[there], return_inverse=True)[1]
    return table.filter(pa.array(there)), labels


def _cells(table: pa.Table, position: int) -> pa.StringArray:
    return pc.ascii_trim_whitespace(as_text(table.column(str(position)).combine_chunks()))


def _present(cells: pa.StringArray, column: Column) -> np.ndarray:
    tokens = pa.array([token.encode() for token in column.tokens], pa.binary())
    return ~np.asarray(pc.is_in(cells.view(pa.binary()), value_set=tokens))


def _numbers(cells: pa.StringArray) -> np.ndarray:
    """float64 `[n]`, NaN for what is no number."""
    return numbers_of(cells, np.zeros(len(cells), bool))
