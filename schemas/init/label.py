"""Which column is the label, how it is declared, and which other columns give it away."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.values import as_text
from schemas.errors import UsageError, did_you_mean, few
from schemas.init.columns import FEW_ROWS, ColumnFacts, distinct, number, percent, shares
from schemas.init.kinds import LISTED, SKEWED, Declaration, as_amounts, merged
from schemas.profile.duplicates import HASH, RecordHashes, value_hashes
from schemas.profile.label_leaks import LabelSignal, SampledRows, label_signals
from schemas.profile.raw_columns import numbers_of
from schemas.spec.split_hash import mix

_MOST_CLASSES = 1_000  # of text, from which on a column is no class
_RARE = 0.05  # a share of the records below which a class is rare
_NAMES = re.compile(
    r"(^|[_\W])(label|labels|target|class|y|outcome|survived|churn|churned|fraud|is_fraud|default|species|diagnosis|"
    r"income|salary|price|saleprice|rating|quality|response|converted|clicked|late|sentiment|income_bracket|vote)$",
    re.IGNORECASE,
)

_LEAST_ROWS = 100  # of the sample that have a label: fewer are not judged
_COPY = 0.98  # of a constant guess's errors are avoided: the column is the label, written otherwise
_PRESENCE = 0.9  # the same, where it is enough to know whether there is a value
_COPIED_NUMBER = 0.9999  # a correlation
_PURE, _PURE_ROWS, _CHANCE = 0.98, 50, 1e-9
TELLS = "tells the label"
_PRESENT = " present"
_BY_NUMBER = 20  # distinct numbers: of fewer, each is a value of its own


def choose(columns: Sequence[ColumnFacts], choice: str | None, path: str) -> Declaration:
    """Declares the label: the column of that name, or else the likeliest one.

    Raises:
        UsageError: there is no such column, or none to learn: the one of that name has no value, one value only, a row
            number, or hardly a value twice.
    """
    if choice is not None:
        column = _named(columns, choice, path)
        if fault := _fault(column):
            raise UsageError(f"--label {choice}: the column of {path} has {fault}")
        return _declared(column)
    present = [column for column in columns if column.present]
    if not present:
        raise UsageError(f"{path}: no column has a value in any record; expected values for features and a label")
    score = {column: _score(column, len(columns)) for column in present if not _unlearnable(column)}
    ranked = sorted(score, key=lambda column: -score[column])
    if not ranked:
        reasons = "; ".join(f"{column.called!r} has {_unlearnable(column)}" for column in present[:5])
        raise UsageError(f"{path}: no column can be the label: {reasons}")
    alternatives = [column.called for column in ranked[1:4] if score[column] >= 3 and _is_class(column)]
    by_name, last = _NAMES.search(ranked[0].name or ""), ranked[0].position == len(columns) - 1
    reason = "by its name" if by_name else "as the last column" if last else "by its values"
    also = f"; it might also be {', '.join(alternatives)}" if alternatives else ""
    return _declared(ranked[0], f"Guessed {reason}{also}. --label NAME chooses another column.")


def _named(columns: Sequence[ColumnFacts], choice: str, path: str) -> ColumnFacts:
    """The column of a name, or of a position where there are no names."""
    for column in columns:
        if choice == column.called or (column.name is None and choice == f"column_{column.position}"):
            return column
    names = [column.called for column in columns]
    kind = "the columns" if columns[0].name is not None else "no header, so that columns are called by their positions:"
    raise UsageError(
        f"--label {choice}: {path} has no such column{did_you_mean(choice, names)}\nIt has {kind} {few(names, 12)}"
    )


def _fault(column: ColumnFacts) -> str:
    """What a column has, where it cannot be the label; else nothing."""
    if not column.present:
        return f"no value in any of the {column.rows:,} records"
    if column.distinct == 1 and column.rows > 1:
        return (
            f"one class, {column.values()[0]!r}, in all {column.present:,} records that have one; a model would have "
            "nothing to tell apart. Name another column, or add records of other classes"
        )
    return _unlearnable(column)


def _unlearnable(column: ColumnFacts) -> str:
    """What a column has, where a model can learn nothing of it that holds for other records; else nothing."""
    if amounts := as_amounts(column):
        return amounts
    if column.row_number:
        values = f"a number of its own for each record, {number(column.low)} to {number(column.high)}"
    elif column.one_of_a_kind and not column.numeric:
        times = column.present / column.distinct
        values = f"{distinct(column)} classes in {column.present:,} records, {times:.1f} for each"
    else:
        return ""
    return (
        f"{values}, of which a model learns nothing that holds for others. Name another column, or declare it by hand"
    )


def _is_class(column: ColumnFacts) -> bool:
    """Whether its values may be classes."""
    if not column.numeric or column.profile.leading_zeros:
        return column.known and column.distinct <= min(_MOST_CLASSES, max(2, column.present // 2))
    if not column.known or column.present < FEW_ROWS:
        return False
    dense = column.high - column.low + 1 <= 2 * column.distinct <= 2 * LISTED
    return column.distinct == 2 or (column.whole and dense and column.present >= 10 * column.distinct)


def _score(column: ColumnFacts, width: int) -> float:
    """How likely a column is the label: by its name, its place and its values."""
    score = 4.0 * bool(_NAMES.search(column.name or ""))
    score += 3.0 * (column.position == width - 1) + 0.5 * (column.position == 0)
    if column.rows >= FEW_ROWS:
        score += 2.0 * (_is_class(column) and column.distinct >= 2)
        score -= 6.0 * (column.distinct < 2)
    return score - 4.0 * column.missing / max(column.rows, 1) - 1.0 * bool(column.missing)


def _declared(column: ColumnFacts, guess: str = "") -> Declaration:
    if not _is_class(column) and column.numeric:
        kind, settings, sentences = "numeric", {}, _of_numbers(column)
    else:
        kind, sentences = "category", _of_classes(column)
        settings = {"values": column.values()} if column.known and 2 <= column.distinct <= _MOST_CLASSES else {}
    evidence = "\n".join(filter(None, (guess, *sentences)))  # each is a comment of its own
    note = ""
    if column.distinct == 1 and column.rows > 1:
        note = "is the label and has one class, so that there is nothing to learn; --label names another"
    return Declaration(column.position, column.position, kind, settings, evidence, note)


def _of_numbers(column: ColumnFacts) -> list[str]:
    numbers, lost = column.profile.numbers, merged([column])
    spread = f"mean {number(numbers.mean)}, deviation {number(numbers.deviation)}"
    sentences = [f"A number from {number(column.low)} to {number(column.high)}, {spread}: regression."]
    if lost:
        sentences.append(f"It loses digits: {lost}.")
    if column.low >= 0 and numbers.skewness >= SKEWED:
        rejects = ", and would reject records of 0" if column.low == 0 else ""
        sentences.append(f"A long tail: transform: log1p learns ln(1 + x); transform: log learns ln(x){rejects}.")
    return sentences


def _of_classes(column: ColumnFacts) -> list[str]:
    ranked = column.ranked()
    classes = f"{column.distinct:,} classes: {shares(column, 8)}".removesuffix(", ...")
    more = " and others" if column.distinct > 8 else ""
    balance = f"{classes}{more}." if column.distinct > 1 else "Only one class."
    if len(ranked) > 1 and ranked[-1][1] < _RARE * column.present:
        ratio = ranked[0][1] / ranked[-1][1]
        balance += f" Unbalanced, {ratio:,.0f} to 1: judge a model by AUC or recall rather than accuracy."
    sentences = [balance]
    if column.na_note:
        sentences.append(f"{column.na_note}.")
    if column.numeric and column.distinct > 2:
        sentences.append("If the numbers are amounts rather than classes, declare kind: numeric without values.")
    return sentences


def find_leaks(
    columns: Sequence[ColumnFacts], label: Declaration, sample: RecordHashes, declared: Sequence[Declaration]
) -> dict[int, str]:
    """The declarations that predict the label almost without an error, each alone: evidence by the first column.

    It takes `schemas.profile.label_leaks` on a sample of the rows.

    A one-hot group is taken as one; vectors, of which each column says little, are left out.
    """
    table, labels = _with_label(sample.table, columns[label.first], numbers=label.kind == "numeric")
    if table.num_rows < _LEAST_ROWS:
        return {}
    numbers: dict[str, np.ndarray] = {}
    codes: dict[str, np.ndarray] = {}  # also, by name and _PRESENT, whether there is a value
    present: dict[str, np.ndarray] = {}
    for declaration in declared:
        name, column = str(declaration.first), columns[declaration.first]
        if declaration.kind == "one_hot":
            ones = [_numbers(_cells(table, i)) == 1 for i in range(declaration.first, declaration.last + 1)]
            codes[name] = np.argmax(ones, axis=0) + 1
        elif declaration.width == 1 and column.present and not column.constant:
            cells = _cells(table, declaration.first)
            there = present[name] = _has_value(cells, column)
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
        if name.endswith(_PRESENT):
            continue
        leak = _of_presence(signals.get(name + _PRESENT))
        if not leak and label.kind == "category" and name in present:
            leak = _of_one_class(labels, present[name])
        leaks[int(name)] = leak or _of_values(signals.get(name), len(labels))
    return leaks


def _of_presence(signal: LabelSignal | None) -> str:
    if signal is None or signal.errors_avoided < _PRESENCE:
        return ""
    return f"{TELLS}: a guess by whether it has a value alone {_less_often(signal)}"


def _of_values(signal: LabelSignal | None, rows: int) -> str:
    if signal is None:
        return ""
    among = f" (among the {signal.rows:,} of {rows:,} sampled records that have a value)" if signal.rows < rows else ""
    if signal.measure == "correlation" and signal.value >= _COPIED_NUMBER:
        return f"{TELLS}: their correlation is {signal.value:.5f}{among}"
    if signal.errors_avoided >= _COPY:
        return f"{TELLS}: a guess by it alone {_less_often(signal)}{among}"
    return ""


def _less_often(signal: LabelSignal) -> str:
    return f"is wrong {percent(signal.errors_avoided, 1)} less often than one without it"


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
    values = _numbers(cells) if numbers else value_hashes(cells.view(pa.binary()))
    there = _has_value(cells, label) & ~(np.isnan(values) if numbers else np.zeros(len(values), bool))
    labels = values[there] if numbers else np.unique(values[there], return_inverse=True)[1]
    return table.filter(pa.array(there)), labels


def _cells(table: pa.Table, position: int) -> pa.StringArray:
    return pc.ascii_trim_whitespace(as_text(table.column(str(position)).combine_chunks()))


def _has_value(cells: pa.StringArray, column: ColumnFacts) -> np.ndarray:
    tokens = pa.array([token.encode() for token in column.tokens], pa.binary())
    return ~np.asarray(pc.is_in(cells.view(pa.binary()), value_set=tokens))


def _numbers(cells: pa.StringArray) -> np.ndarray:
    """float64 `[n]`, NaN for what is no number."""
    return numbers_of(cells, np.zeros(len(cells), bool))
