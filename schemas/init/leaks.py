"""Finds columns of a table that give the label away, on a random sample of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.values import as_text
from schemas.init.cells import numbers_of
from schemas.init.columns import ColumnFacts
from schemas.init.kinds import Declaration
from schemas.init.writing import percent
from schemas.profile.duplicates import HASH, RecordHashes, value_hashes
from schemas.profile.label_leaks import LabelSignal, SampledRows, label_signals
from schemas.spec.split_hash import mix

TELLS = "tells the label"
_LEAST_ROWS = 100  # of the sample that have a label: fewer are not judged
_COPY = 0.98  # of a constant guess's errors are avoided: the column is the label, written otherwise
_PRESENCE = 0.9  # the same, where it is enough to know whether there is a value
_COPIED_NUMBER = 0.9999  # a correlation
_PURE, _PURE_ROWS, _CHANCE = 0.98, 50, 1e-9
_BY_NUMBER = 20  # distinct numbers: of fewer, each is a value of its own


def find_leaks(
    columns: Sequence[ColumnFacts], label: Declaration, sample: RecordHashes, declared: Sequence[Declaration]
) -> dict[int, str]:
    """Finds the declarations that alone predict the label almost without an error: evidence by their first column.

    A one-hot group is taken as one; vectors, of which each column says little, are left out.
    """
    table, labels = _with_label(sample.table, columns[label.first], numbers=label.kind == "numeric")
    if table.num_rows < _LEAST_ROWS:
        return {}
    numbers: dict[str, np.ndarray] = {}
    codes: dict[str, np.ndarray] = {}
    leaks: dict[int, str] = {}
    for declaration in declared:
        name, column = str(declaration.first), columns[declaration.first]
        if declaration.kind == "one_hot":
            ones = [numbers_of(_cells(table, i)) == 1 for i in range(declaration.first, declaration.last + 1)]
            codes[name] = np.argmax(ones, axis=0) + 1
        elif declaration.width == 1 and column.present and not column.constant:
            cells = _cells(table, declaration.first)
            present = _has_value(cells, column)
            if column.numeric and (label.kind == "numeric" or column.distinct > _BY_NUMBER):
                numbers[name] = np.where(present, numbers_of(cells), np.nan).astype(np.float32)
            else:
                codes[name] = np.where(present, value_hashes(cells.view(pa.binary())), np.uint64(0))
            if label.kind == "category":
                leaks[declaration.first] = _of_one_class(labels, present)
    empty = np.empty((len(labels), 0))
    rows = SampledRows(
        labels,
        np.column_stack([empty, *numbers.values()]).astype(np.float32),
        np.column_stack([empty.astype(np.uint64), *(code.astype(np.uint64) for code in codes.values())]),
        (mix(np.asarray(table.column(HASH))) & np.uint64(1)).astype(bool),
    )
    for signal in label_signals(rows, [*numbers], [*codes]):
        first = int(signal.name)
        leaks[first] = _of_presence(signal) or leaks.get(first) or _of_values(signal, len(labels))
    return leaks


def _of_presence(signal: LabelSignal) -> str:
    if signal.avoided_by_presence < _PRESENCE:
        return ""
    return f"{TELLS}: a guess by whether it has a value alone {_less_often(signal.avoided_by_presence)}"


def _of_values(signal: LabelSignal, rows: int) -> str:
    among = f" (among the {signal.rows:,} of {rows:,} sampled records that have a value)" if signal.rows < rows else ""
    if signal.measure == "correlation" and signal.value >= _COPIED_NUMBER:
        return f"{TELLS}: their correlation is {signal.value:.5f}{among}"
    if signal.errors_avoided >= _COPY:
        return f"{TELLS}: a guess by it alone {_less_often(signal.errors_avoided)}{among}"
    return ""


def _less_often(errors_avoided: float) -> str:
    return f"is wrong {percent(errors_avoided, 1)} less often than one without it"


def _of_one_class(classes: np.ndarray, present: np.ndarray) -> str:
    """That the rows with a value, or those without one, are nearly all of one class, and not by chance."""
    for side, what in ((present, "it has a value"), (~present, "it has none")):
        if side.sum() >= _PURE_ROWS and not side.all() and present.mean() < 0.8:
            counts = np.bincount(classes[side])
            usual = float((classes == counts.argmax()).mean())
            share = float(counts.max() / side.sum())
            if share >= _PURE and usual < 0.95 and usual ** side.sum() < _CHANCE:
                return f"{TELLS}: where {what}, {percent(share, 1)} of the records are of one class"
    return ""


def _with_label(table: pa.Table, label: ColumnFacts, *, numbers: bool) -> tuple[pa.Table, np.ndarray]:
    """The rows that have a label; and their labels, float64 numbers or int64 classes."""
    cells = _cells(table, label.position)
    values = numbers_of(cells) if numbers else value_hashes(cells.view(pa.binary()))
    there = _has_value(cells, label) & ~(np.isnan(values) if numbers else np.zeros(len(values), bool))
    labels = values[there] if numbers else np.unique(values[there], return_inverse=True)[1]
    return table.filter(pa.array(there)), labels


def _cells(table: pa.Table, position: int) -> pa.StringArray:
    return pc.ascii_trim_whitespace(as_text(table.column(str(position)).combine_chunks()))


def _has_value(cells: pa.StringArray, column: ColumnFacts) -> np.ndarray:
    tokens = pa.array([token.encode() for token in column.tokens], pa.binary())
    return ~np.asarray(pc.is_in(cells.view(pa.binary()), value_set=tokens))
