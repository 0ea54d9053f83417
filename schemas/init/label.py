"""Which column is the label, and how it is declared."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import UsageError, counted, did_you_mean, few
from schemas.init.columns import FEW_ROWS, NA_NOTE, Column, distinct, na_is_a_code, number, shares
from schemas.init.kinds import LISTED, SKEWED, as_amounts, merged

MOST_CLASSES = 1_000  # of text, from which on a column is no class
_RARE = 0.05  # a share of the records below which a class is rare
_NAMES = re.compile(
    r"(^|[_\W])(label|labels|target|class|y|outcome|survived|churn|churned|fraud|is_fraud|default|species|diagnosis|"
    r"income|salary|price|saleprice|rating|quality|response|converted|clicked|late|sentiment|income_bracket|vote)$",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class LabelChoice:
    """The label: its column, its keys in a schema, and what the data shows of it."""

    position: int
    kind: str
    settings: Mapping[str, Any]
    evidence: tuple[str, ...]


def choose(columns: Sequence[Column], choice: str | None, path: str) -> LabelChoice:
    """The label that was asked for, or else the likeliest one.

    Raises:
        UsageError: there is no such column, or none to learn: the one that was asked for has no value, one value only,
            a row number, or hardly a value twice.
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


def _named(columns: Sequence[Column], choice: str, path: str) -> Column:
    """The column of a name, or of a position where there are no names."""
    for column in columns:
        if choice == column.called or (column.name is None and choice == f"column_{column.position}"):
            return column
    names = [column.called for column in columns]
    kind = "the columns" if columns[0].name is not None else "no header, so that columns are called by their positions:"
    raise UsageError(
        f"--label {choice}: {path} has no such column{did_you_mean(choice, names)}\nIt has {kind} {few(names, 12)}"
    )


def _fault(column: Column) -> str:
    """What a column has, where it cannot be the label; else nothing."""
    if not column.present:
        return f"no value in any of the {column.rows:,} records"
    if column.distinct == 1 and column.rows > 1:
        return (
            f"one class, {column.values()[0]!r}, in all {column.present:,} records that have one; a model would have "
            "nothing to tell apart. Name another column, or add records of other classes"
        )
    return _unlearnable(column)


def _unlearnable(column: Column) -> str:
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


def _is_class(column: Column) -> bool:
    """Whether its values may be classes."""
    if not column.numeric or column.profile.leading_zeros:
        return column.known and column.distinct <= min(MOST_CLASSES, max(2, column.present // 2))
    if not column.known or column.present < FEW_ROWS:
        return False
    dense = column.high - column.low + 1 <= 2 * column.distinct <= 2 * LISTED
    return column.distinct == 2 or (column.whole and dense and column.present >= 10 * column.distinct)


def _score(column: Column, width: int) -> float:
    """How likely a column is the label: by its name, its place and its values."""
    score = 4.0 * bool(_NAMES.search(column.name or ""))
    score += 3.0 * (column.position == width - 1) + 0.5 * (column.position == 0)
    if column.rows >= FEW_ROWS:
        score += 2.0 * (_is_class(column) and column.distinct >= 2)
        score -= 6.0 * (column.distinct < 2)
    return score - 4.0 * column.missing / max(column.rows, 1) - 1.0 * bool(column.missing)


def _declared(column: Column, *evidence: str) -> LabelChoice:
    if not _is_class(column) and column.numeric:
        numbers = column.profile.numbers
        of_numbers = (
            f"A number from {number(column.low)} to {number(column.high)}, mean {number(numbers.mean)}, "
            f"deviation {number(numbers.deviation)}: regression{merged([column])}."
        )
        return LabelChoice(column.position, "numeric", {}, (*evidence, of_numbers, *_logarithms(column)))
    listed = column.known and 2 <= column.distinct <= MOST_CLASSES
    of_classes = [_balance(column)]
    if na_is_a_code(column.profile):
        of_classes.append(f"{NA_NOTE}.")
    if column.numeric and column.distinct > 2:
        of_classes.append("If the numbers are amounts rather than classes, declare kind: numeric without values.")
    settings = {"values": column.values()} if listed else {}
    return LabelChoice(column.position, "category", settings, (*evidence, *of_classes))


def _logarithms(column: Column) -> list[str]:
    """Which logarithm a model may learn of numbers with a long tail."""
    if column.low < 0 or column.profile.numbers.skewness < SKEWED:
        return []
    zeros = sum(n for value, n in column.ranked() if float(value) == 0)
    rejected = f"{counted(zeros, 'record')} of 0" if zeros else "records of 0"
    log = f"log, which is ln(x), would reject {rejected}" if column.low == 0 else "log learns ln(x)"
    return [f"A long tail: transform: log1p learns ln(1 + x), as log does of a feature; transform: {log}."]


def _balance(column: Column) -> str:
    """The classes with their shares, and whether some are rare."""
    ranked = column.ranked()
    classes = f"{column.distinct:,} classes: {shares(column, 8)}".removesuffix(", ...")
    text = f"{classes}{' and others' if column.distinct > 8 else ''}." if column.distinct > 1 else "Only one class."
    if len(ranked) > 1 and ranked[-1][1] < _RARE * column.present:
        ratio = ranked[0][1] / ranked[-1][1]
        text += f" Unbalanced, {ratio:,.0f} to 1: judge a model by AUC or recall rather than accuracy."
    return text
