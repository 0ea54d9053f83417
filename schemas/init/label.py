"""Which column is the label, and how it is declared."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.values import as_text
from schemas.errors import UsageError, counted, did_you_mean, few
from schemas.init.kinds import (
    FEW_ROWS,
    LISTED,
    NA_NOTE,
    SKEWED,
    Column,
    Declaration,
    as_amounts,
    distinct,
    in_order,
    merged,
    na_is_a_code,
    number,
    percent,
    shares,
)
from schemas.profile.duplicates import HASH, RecordHashes
from schemas.profile.label_leaks import bins, correlation, errors_avoided, rank_correlation
from schemas.profile.raw_columns import numbers_of
from schemas.spec.split_hash import mix

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
    columns: Sequence[Column], label: LabelChoice, sample: RecordHashes, declared: Sequence[Declaration]
) -> list[Leak]:
    """The declarations that predict the label almost without an error, each alone, on rows kept apart for that.

    A one-hot group is taken as one; vectors, of which each column says little, are left out.
    """
    if sample.table.num_rows < LEAST_ROWS:
        return []
    target = columns[label.position]
    cells = _trimmed(sample, label.position)
    kept = np.flatnonzero(_present(cells, target))
    if len(kept) < LEAST_ROWS:
        return []
    take = pa.array(kept)
    fitting = (mix(np.asarray(sample.table.column(HASH))[kept]) & np.uint64(1)).astype(bool)
    labels = cells.take(take)
    classes = None if label.kind == "numeric" else _codes(labels)
    found = []
    for each in declared:
        column = columns[each.first]
        if not column.present or column.constant:
            continue
        if each.kind == "one_hot" and classes is not None:
            ones = [_numbers(_trimmed(sample, i).take(take)) == 1 for i in range(each.first, each.last + 1)]
            found.append(_judged(each.first, np.argmax(ones, axis=0), classes, fitting))
        elif each.width == 1 and classes is not None:
            found.append(_tells(column, _trimmed(sample, each.first).take(take), classes, fitting))
        elif each.width == 1 and column.numeric:
            values, truth = _numbers(_trimmed(sample, each.first).take(take)), _numbers(labels)
            both = np.isfinite(values) & np.isfinite(truth)
            if both.sum() < LEAST_ROWS:
                continue
            values, truth = values[both], truth[both]
            copied = max(correlation(values, truth), rank_correlation(values, truth))
            if copied >= _COPIED_NUMBER:
                evidence = f"tells the label: their correlation is {copied:.5f}{_among(both)}"
                found.append(Leak(column.position, evidence, certain=True))
    return [leak for leak in found if leak is not None]


def _trimmed(sample: RecordHashes, position: int) -> pa.StringArray:
    return pc.ascii_trim_whitespace(as_text(sample.table.column(str(position)).combine_chunks()))


def _present(cells: pa.StringArray, column: Column) -> np.ndarray:
    tokens = pa.array([token.encode() for token in column.tokens], pa.binary())
    return ~np.asarray(pc.is_in(cells.view(pa.binary()), value_set=tokens))


def _codes(cells: pa.StringArray) -> np.ndarray:
    return cells.view(pa.binary()).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(cells: pa.StringArray) -> np.ndarray:
    """float64 `[n]`, NaN for what is no number."""
    encoded = cells.dictionary_encode()
    values = numbers_of(encoded.dictionary, np.zeros(len(encoded.dictionary), bool))
    return values[encoded.indices.to_numpy(zero_copy_only=False)]


def _tells(column: Column, cells: pa.StringArray, classes: np.ndarray, fitting: np.ndarray) -> Leak | None:
    present = _present(cells, column)
    if column.missing and not present.all() and present.any():
        there = present.astype(np.int64)
        gone = errors_avoided(there, 2, classes, fitting)
        if gone >= _PRESENCE:
            evidence = f"tells the label: a guess by whether it has a value alone {_wrong_less_often(gone)}"
            return Leak(column.position, evidence, certain=True)
        if column.missing > 0.2 * column.rows:
            for side, what in ((present, "it has a value"), (~present, "it has none")):
                if (share := _purity(classes, side)) is not None:
                    evidence = f"tells the label: where {what}, {percent(share, 1)} of the records are of one class"
                    return Leak(column.position, evidence, certain=True)
    codes = _binned(column, cells, present)
    leak = _judged(column.position, codes, classes, fitting)
    if present.sum() < LEAST_ROWS or (leak is not None and leak.certain) or present.all():
        return leak
    of_present = _judged(column.position, codes[present], classes[present], fitting[present])
    if of_present is None:
        return leak
    return dataclasses.replace(of_present, evidence=f"{of_present.evidence}{_among(present)}")


def _among(present: np.ndarray) -> str:
    """How many records a column was judged on, where it has no value in the others."""
    if present.all():
        return ""
    return f" (among the {int(present.sum()):,} of {len(present):,} sampled records that have a value)"


def _wrong_less_often(gone: float) -> str:
    return f"is wrong {percent(gone, 1)} less often than one without it"


def _judged(position: int, codes: np.ndarray, classes: np.ndarray, fitting: np.ndarray) -> Leak | None:
    gone = errors_avoided(codes, int(codes.max()) + 1, classes, fitting)
    if gone >= _COPY:
        return Leak(position, f"tells the label: a guess by it alone {_wrong_less_often(gone)}", certain=True)
    if gone >= _CLOSE:
        evidence = f"a guess of the label by it alone {_wrong_less_often(gone)}: is it known before the label is?"
        return Leak(position, evidence, certain=False)
    return None


def _binned(column: Column, cells: pa.StringArray, present: np.ndarray) -> np.ndarray:
    """A small number for each row: its value, or of many numbers, the bin; missing is one of its own."""
    if not (column.numeric and column.distinct > _BINS):
        return _codes(cells)
    codes: np.ndarray = bins(np.where(present, _numbers(cells), np.nan)[None], _BINS)[0][0]
    return codes


def _purity(classes: np.ndarray, side: np.ndarray) -> float | None:
    """The share of the commonest class on one side, where it is nearly all of them and no accident."""
    rows = int(side.sum())
    if rows < _PURE_ROWS:
        return None
    counts = np.bincount(classes[side])
    share = counts.max() / rows
    usual = float((classes == counts.argmax()).mean())
    return float(share) if share >= _PURE and usual < 0.95 and usual**rows < _CHANCE else None
