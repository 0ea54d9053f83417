"""Chooses the column that is the label, and declares it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schemas.errors import UsageError, did_you_mean, few
from schemas.init.columns import FEW_ROWS, ColumnFacts
from schemas.init.kinds import LISTED, SKEWED, Declaration, as_amounts, lost_digits
from schemas.init.writing import number

_MOST_CLASSES = 1_000  # of text, from which on a column is no class
_RARE = 0.05  # a share of the records below which a class is rare
_NAMES = re.compile(
    r"(^|[_\W])(label|labels|target|class|y|outcome|survived|churn|churned|fraud|is_fraud|default|species|diagnosis|"
    r"income|salary|price|saleprice|rating|quality|response|converted|clicked|late|sentiment|income_bracket|vote)$",
    re.IGNORECASE,
)


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
        values = f"{column.about_distinct} classes in {column.present:,} records, {times:.1f} for each"
    else:
        return ""
    return (
        f"{values}, of which a model learns nothing that holds for others. Name another column, or declare it by hand"
    )


def _is_class(column: ColumnFacts) -> bool:
    """Whether its values may be classes."""
    if not column.numeric or column.evidence.leading_zeros:
        return column.countable and column.distinct <= min(_MOST_CLASSES, max(2, column.present // 2))
    if not column.countable or column.present < FEW_ROWS:
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
        settings = {"values": column.values()} if column.countable and 2 <= column.distinct <= _MOST_CLASSES else {}
    evidence = "\n".join(filter(None, (guess, *sentences)))  # each is a comment of its own
    note = ""
    if column.distinct == 1 and column.rows > 1:
        note = "is the label and has one class, so that there is nothing to learn; --label names another"
    return Declaration(column.position, column.position, kind, settings, evidence, note)


def _of_numbers(column: ColumnFacts) -> list[str]:
    numbers, lost = column.cells.numbers, lost_digits([column])
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
    classes = f"{column.distinct:,} classes: {column.shares(8)}".removesuffix(", ...")
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
