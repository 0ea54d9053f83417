"""Which column is the label, and how it is declared."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import UsageError
from schemas.init.kinds import FEW_ROWS, LISTED, Column, Declaration, counted, in_order, number, percent, shares
from schemas.profile.hashing import mix
from schemas.profile.raw_columns import RowSample

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
        UsageError: there is no such column, or the one that was asked for has no value, or one value only.
    """
    if asked is not None:
        column = find(columns, asked, path)
        _refuse_useless(column, asked, path)
        return _declared(column, ())
    ranked = sorted((c for c in columns if c.present), key=lambda c: -_score(c, columns))
    if not ranked:
        raise UsageError(f"{path}: no column has a value in any record; expected values for features and a label")
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
    near = difflib.get_close_matches(asked, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    some = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    kind = "the columns" if columns[0].name is not None else "no header, so that columns are called by their positions:"
    raise UsageError(f"--label {asked}: {path} has no such column{hint}\nIt has {kind} {some}")


def _refuse_useless(column: Column, asked: str, path: str) -> None:
    if not column.present:
        raise UsageError(f"--label {asked}: the column has no value in any of the {column.rows:,} records of {path}")
    if column.distinct == 1 and column.rows > 1:
        value = column.ranked()[0][0].decode("utf-8", "replace")
        raise UsageError(
            f"--label {asked}: the column has one class, {value!r}, in all {column.present:,} records of {path} that "
            "have one; a model would have nothing to tell apart. Name another column, or add records of other classes"
        )


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
        score -= 6.0 * (column.distinct < 2) + 3.0 * column.unique * (not column.numeric)
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
        if column.numeric and column.distinct > 2:
            evidence.append("If the numbers are amounts rather than classes, declare kind: numeric without values.")
    else:
        profile = column.profile
        evidence.append(
            f"A number from {number(profile.low)} to {number(profile.high)}, mean {number(profile.numbers.mean)}, "
            f"deviation {number(profile.numbers.deviation)}: regression."
        )
    if column.missing:
        evidence.append(
            f"Rejected: {counted(column.missing, 'record')} without a label ({percent(column.missing, column.rows)})."
        )
    return LabelChoice(column.position, "category" if classes else "numeric", settings, tuple(evidence), others)


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
