"""Columns of bytes to raw columns: cast, checked, and hashed for the split, one column after the other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from schemas.csv import strings
from schemas.csv.cell_error import Problem
from schemas.csv.header import ItemColumns
from schemas.csv.numbers import MissingTokens, clean_numbers, missing_tokens, numbers
from schemas.spec.features import (
    Bool,
    Category,
    CategoryLabel,
    Cross,
    Feature,
    Ignore,
    Key,
    Label,
    Numeric,
    OneHot,
    Text,
    Weight,
)
from schemas.spec.split_hash import assign_splits, hash_rows
from schemas.spec.table import HashSplit, Schema


@dataclasses.dataclass(frozen=True)
class Values:
    """One raw column of n rows: `array` is float32 `[n, k]`, binary `[n]`, or None where it is only hashed.

    `hashed` is what `hash_rows` takes. `problems` holds, by row, the column's label and its first problem.
    """

    array: np.ndarray | pa.BinaryArray | None
    hashed: np.ndarray | None
    problems: dict[int, tuple[str, Problem]]


@dataclasses.dataclass(frozen=True)
class DecodedColumns:
    """Raw columns by name; int8 `[rows]` splits (None: not asked for, or not by hash); the rejected rows' problems."""

    columns: dict[str, np.ndarray | pa.BinaryArray]
    splits: np.ndarray | None
    problems: dict[int, tuple[str, Problem]]


def decode_columns(
    cells: dict[int, pa.BinaryArray], items: tuple[ItemColumns, ...], schema: Schema, rows: int, *, with_split: bool
) -> DecodedColumns:
    """Decodes the cells of `rows` records.

    Args:
        cells: binary `[rows]` by position in the file.
        items: which positions each feature is read from.
        with_split: also compute the split by hash (int8 `[rows]`); not for a split by file.
    """
    missing = missing_tokens(schema.csv.missing)
    by_name = {item.name: item for item in (*schema.features, schema.label)}
    split = schema.split if with_split and isinstance(schema.split, HashSplit) else None
    columns: dict[str, np.ndarray | pa.BinaryArray] = {}
    hashed: list[np.ndarray] = []
    problems: dict[int, tuple[str, Problem]] = {}
    for place in items:
        item = by_name[place.name]
        in_split = split is not None and (place.name in split.by if split.by != "row" else not isinstance(item, Ignore))
        values = _decode(item, [cells[p] for p in place.positions], place, missing, hashing=in_split, rows=rows)
        if values.array is not None:
            columns[place.name] = values.array
        if in_split and values.hashed is not None:
            hashed.append(values.hashed)
        for row, problem in values.problems.items():
            problems.setdefault(row, problem)
    splits = assign_splits(hash_rows(hashed), split) if split is not None else None
    return DecodedColumns(columns, splits, problems)


def _decode(
    item: Feature | Label,
    cells: list[pa.BinaryArray],
    place: ItemColumns,
    missing: MissingTokens,
    *,
    hashing: bool,
    rows: int,
) -> Values:
    match item:
        case OneHot():
            return _one_hot(cells, place, missing, rows)
        case Numeric():
            return _numeric(cells, place, missing, rows, if_absent="missing_value" if item.missing is None else None)
        case Weight():
            return _weight(cells, place, missing, rows)
        case Category() | Bool() | Text() | Key():
            return _string(item, cells[0], place, missing, hashing=hashing)
        case CategoryLabel():
            return _category_label(item, cells[0], place, missing, hashing=hashing)
        case Ignore():
            parts = [strings.distinct(c, missing.tokens) for c in cells]
            hashes = [strings.hash_distinct(p.canonical, p.codes) for p in parts]
            return Values(None, hashes[0] if len(hashes) == 1 else hash_rows(hashes), {})
        case Cross():
            raise AssertionError("a cross has no column")
        case _:
            return _numeric(cells, place, missing, rows, if_absent="missing_label")


def _matrix(
    cells: list[pa.BinaryArray], place: ItemColumns, missing: MissingTokens, rows: int, *, if_absent: str | None
) -> tuple[np.ndarray, dict[int, tuple[str, Problem]]]:
    """float32 `[rows, k]`, and the problems by row."""
    values = None
    if len(cells) > 1:  # of hundreds of columns, most time would go into calls
        values = clean_numbers(pa.concat_arrays(cells), missing)
    if values is not None:
        return np.ascontiguousarray(values.reshape(len(cells), rows).T, np.float32), {}
    matrix = np.empty((rows, len(cells)), np.float32)
    problems: dict[int, tuple[str, Problem]] = {}
    for j, (column, label) in enumerate(zip(cells, place.labels, strict=True)):
        matrix[:, j], found = numbers(column, missing, if_absent=if_absent)
        for row, problem in found.items():
            problems.setdefault(row, (label, problem))
    return matrix, problems


def _numeric(
    cells: list[pa.BinaryArray], place: ItemColumns, missing: MissingTokens, rows: int, *, if_absent: str | None
) -> Values:
    matrix, problems = _matrix(cells, place, missing, rows, if_absent=if_absent)
    return Values(matrix, matrix, problems)


def _one_hot(cells: list[pa.BinaryArray], place: ItemColumns, missing: MissingTokens, rows: int) -> Values:
    """Hashed by the position of the 1."""
    matrix, problems = _matrix(cells, place, missing, rows, if_absent="missing_value")
    ones = matrix == 1
    good = (np.count_nonzero(ones, axis=1) == 1) & (np.count_nonzero(matrix, axis=1) == 1)
    for row in np.flatnonzero(~good).tolist():
        found = f"found {np.count_nonzero(ones[row])} ones and {np.count_nonzero(matrix[row] == 0)} zeros"
        problem = Problem("not_one_hot", f"{found} in {len(cells)} columns, expected one 1, and 0 elsewhere")
        problems.setdefault(row, (place.labels[0], problem))
    return Values(matrix, ones.argmax(axis=1).astype(np.float32), problems)


def _weight(cells: list[pa.BinaryArray], place: ItemColumns, missing: MissingTokens, rows: int) -> Values:
    matrix, problems = _matrix(cells, place, missing, rows, if_absent="missing_value")
    for row in np.flatnonzero(matrix[:, 0] < 0).tolist():
        problem = Problem("negative_weight", f"found {matrix[row, 0]:g}, expected 0 or more")
        problems.setdefault(row, (place.labels[0], problem))
    return Values(matrix, matrix, problems)


def _string(
    item: Category | Bool | Text | Key,
    cells: pa.BinaryArray,
    place: ItemColumns,
    missing: MissingTokens,
    *,
    hashing: bool,
) -> Values:
    column = strings.distinct(cells, missing.tokens)
    problems = strings.not_utf8(column)
    canonical: pa.BinaryArray | list[bytes] = column.canonical
    if isinstance(item, Bool):
        canonical, wrong = strings.bool_values(column, item)
        problems = wrong | problems
    if isinstance(item, Category) and item.in_vocabulary:
        if_empty = "missing_value" if item.missing is None else None
        problems |= strings.no_words(column.trimmed, if_empty=if_empty)
    if isinstance(item, Category | Bool) and item.missing is None:
        problems = strings.absent_values(column) | problems
    hashed = strings.hash_distinct(canonical, column.codes) if hashing else None
    return Values(cells, hashed, _at(place, strings.rows_of(problems, column.codes)))


def _category_label(
    item: CategoryLabel, cells: pa.BinaryArray, place: ItemColumns, missing: MissingTokens, *, hashing: bool
) -> Values:
    column = strings.distinct(cells, missing.tokens)
    canonical, problems = strings.label_values(column, item)
    if item.values is None:
        words = pa.array(canonical, pa.binary())
        refused = strings.not_utf8(column) | strings.no_words(words, if_empty="missing_label")
        problems = refused | problems
    hashed = strings.hash_distinct(canonical, column.codes) if hashing else None
    return Values(strings.take(canonical, column.codes), hashed, _at(place, strings.rows_of(problems, column.codes)))


def _at(place: ItemColumns, problems: dict[int, Problem]) -> dict[int, tuple[str, Problem]]:
    return {row: (place.labels[0], problem) for row, problem in problems.items()}
