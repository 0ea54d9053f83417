"""Which column is the label, and how it is declared."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import UsageError, counted, did_you_mean, few
from schemas.init.kinds import (
    FEW_ROWS,
    LISTED,
    NA_NOTE,
    SKEWED,
    Column,
    as_amounts,
    distinct,
    in_order,
    merged,
    na_is_a_code,
    number,
    shares,
)

MOST_CLASSES = 1_000  # of text, from which on a column is no class
_RARE = 0.05  # a share of the records below which a class is rare
_NAMES = re.compile(
    r"(^|[_\W])(label|labels|target|class|y|outcome|survived|churn|churned|fraud|is_fraud|default|species|diagnosis|"
    r"income|salary|price|saleprice|rating|quality|response|converted|clicked|late|sentiment|income_bracket|vote)$",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class LabelChoice:
    """The label: its column, its keys in a schema, what the data shows of it, and other columns that it might be."""

    position: int
    kind: str
    settings: Mapping[str, Any]
    evidence: tuple[str, ...]
    others: tuple[str, ...]


def choose(columns: Sequence[Column], asked: str | None, path: str) -> LabelChoice:
    """The label that was asked for, or else the likeliest one.

    Raises:
        UsageError: there is no such column, or none to learn: the one that was asked for has no value, one value only,
            a row number, or hardly a value twice.
    """
    if asked is not None:
        column = find(columns, asked, path)
        _refuse_useless(column, asked, path)
        return _declared(column, ())
    present = [c for c in columns if c.present]
    if not present:
        raise UsageError(f"{path}: no column has a value in any record; expected values for features and a label")
    ranked = sorted((c for c in present if not _unlearnable(c)), key=lambda c: -_score(c, columns))
    if not ranked:
        reasons = "; ".join(f"{_called(c)!r} has {_unlearnable(c)}" for c in present[:5])
        raise UsageError(f"{path}: no column can be the label: {reasons}")
    others = tuple(_called(c) for c in ranked[1:4] if _score(c, columns) >= 3 and _is_class(c))
    return _declared(ranked[0], others, guessed=_reason(ranked[0], columns))


def find(columns: Sequence[Column], asked: str, path: str) -> Column:
    """The column of a name, or of a position where there are no names."""
    for column in columns:
        if asked == column.name or (
            column.name is None and asked in (str(column.position), f"column_{column.position}")
        ):
            return column
    names = [column.name or str(column.position) for column in columns]
    hint = did_you_mean(asked, names)
    kind = "the columns" if columns[0].name is not None else "no header, so that columns are called by their positions:"
    raise UsageError(f"--label {asked}: {path} has no such column{hint}\nIt has {kind} {few(names, 12)}")


def _refuse_useless(column: Column, asked: str, path: str) -> None:
    if not column.present:
        raise UsageError(f"--label {asked}: the column has no value in any of the {column.rows:,} records of {path}")
    if column.distinct == 1 and column.rows > 1:
        value = column.ranked()[0][0].decode("utf-8", "replace")
        raise UsageError(
            f"--label {asked}: the column has one class, {value!r}, in all {column.present:,} records of {path} that "
            "have one; a model would have nothing to tell apart. Name another column, or add records of other classes"
        )
    if reason := _unlearnable(column):
        raise UsageError(f"--label {asked}: the column of {path} has {reason}")


def _unlearnable(column: Column) -> str:
    """What a column has, where a model can learn nothing of it that holds for other records; else nothing."""
    if amounts := as_amounts(column):
        return amounts
    if column.row_number:
        had = f"a number of its own for each record, {number(column.profile.low)} to {number(column.profile.high)}"
    elif column.one_of_a_kind and not column.numeric:
        each = column.present / column.distinct
        had = f"{distinct(column)} classes in {column.present:,} records, {each:.1f} for each"
    else:
        return ""
    return f"{had}, of which a model learns nothing that holds for others. Name another column, or declare it by hand"


def _called(column: Column) -> str:
    return column.name or str(column.position)


def _is_class(column: Column) -> bool:
    """Whether its values may be classes."""
    if column.numeric and not column.profile.leading_zeros:
        return _is_numbered_class(column)
    return column.known and column.distinct <= min(MOST_CLASSES, max(2, column.present // 2))


def _is_numbered_class(column: Column) -> bool:
    if not column.known or column.present < FEW_ROWS:
        return False
    if column.distinct == 2:
        return True
    profile = column.profile
    dense = profile.high - profile.low + 1 <= 2 * column.distinct
    return profile.whole and column.distinct <= LISTED and dense and column.present >= 10 * column.distinct


def _score(column: Column, columns: Sequence[Column]) -> float:
    """How likely a column is the label: by its name, its place and its values."""
    score = 4.0 * bool(_NAMES.search(column.name or ""))
    score += 3.0 * (column.position == len(columns) - 1) + 0.5 * (column.position == 0)
    if column.rows >= FEW_ROWS:
        score += 2.0 * (_is_class(column) and column.distinct >= 2)
        score -= 6.0 * (column.distinct < 2)
    return score - 4.0 * bool(column.missing) * column.missing / max(column.rows, 1) - 1.0 * bool(column.missing)


def _reason(column: Column, columns: Sequence[Column]) -> str:
    if _NAMES.search(column.name or ""):
        return "by its name"
    return "as the last column" if column.position == len(columns) - 1 else "by its values"


def _declared(column: Column, others: tuple[str, ...], guessed: str | None = None) -> LabelChoice:
    evidence = []
    if guessed is not None:
        also = f"; it might also be {', '.join(others)}" if others else ""
        evidence.append(f"Guessed {guessed}{also}. --label NAME chooses another column.")
    classes = _is_class(column) or not column.numeric
    settings: dict[str, Any] = {}
    if classes:
        if column.known and 2 <= column.distinct <= MOST_CLASSES:
            settings["values"] = in_order(column)
        evidence.append(_balance(column))
        if na_is_a_code(column.profile):
            evidence.append(f"{NA_NOTE}.")
        if column.numeric and column.distinct > 2:
            evidence.append("If the numbers are amounts rather than classes, declare kind: numeric without values.")
    else:
        profile = column.profile
        evidence.append(
            f"A number from {number(profile.low)} to {number(profile.high)}, mean {number(profile.numbers.mean)}, "
            f"deviation {number(profile.numbers.deviation)}: regression{merged([column])}."
        )
        evidence += _logarithms(column)
    return LabelChoice(column.position, "category" if classes else "numeric", settings, tuple(evidence), others)


def _logarithms(column: Column) -> list[str]:
    """Which logarithm a model may learn of numbers with a long tail."""
    profile = column.profile
    if profile.low < 0 or profile.numbers.skewness < SKEWED:
        return []
    zeros = sum(n for value, n in column.ranked() if float(value) == 0)
    rejected = f"{counted(zeros, 'record')} of 0" if zeros else "records of 0"
    log = f"log, which is ln(x), would reject {rejected}" if profile.low == 0 else "log learns ln(x)"
    return [f"A long tail: transform: log1p learns ln(1 + x), as log does of a feature; transform: {log}."]


def _balance(column: Column) -> str:
    """The classes with their shares, and whether some are rare."""
    ranked = column.ranked()
    told = f"{column.distinct:,} classes: {shares(column, 8)}".removesuffix(", ...")
    text = f"{told}{' and others' if column.distinct > 8 else ''}." if column.distinct > 1 else "Only one class."
    if len(ranked) > 1 and ranked[-1][1] < _RARE * column.present:
        ratio = ranked[0][1] / ranked[-1][1]
        text += f" Unbalanced, {ratio:,.0f} to 1: judge a model by AUC or recall rather than accuracy."
    return text
