"""Decodes columns of bytes to raw columns, one at a time: casts and checks them, and hashes them for the split."""

from __future__ import annotations

import dataclasses
from typing import assert_never

import numpy as np
import pyarrow as pa

from schemas.csv.header import ItemColumns
from schemas.csv.values import (
    MissingTokens,
    absent_values,
    clean_numbers,
    distinct,
    distinct_counts,
    hash_distinct,
    label_values,
    missing_tokens,
    not_utf8,
    numbers,
    read_values,
    rows_of,
    take,
    too_long,
    vocabulary_errors,
)
from schemas.rows import DistinctNumbers
from schemas.spec.features import CategoryLabel, Cross, Feature, Ignore, Label, ReadAsNumbers, ReadAsStrings, Text
from schemas.spec.forms import CellError
from schemas.spec.split_hash import assign_splits, hash_rows
from schemas.spec.table import HashSplit, Schema


@dataclasses.dataclass(frozen=True)
class ColumnValues:
    """One raw column of n rows.

    Attributes:
        array: float32 `[n, k]` or binary `[n]`; None for a column that is only hashed.
        hashed: the column's input to `hash_rows`; None if the split does not use it.
        problems: by row, the column's label and its first problem.
    """

    array: np.ndarray | pa.BinaryArray | None
    hashed: np.ndarray | None
    problems: dict[int, tuple[str, CellError]]


@dataclasses.dataclass(frozen=True)
class DecodedColumns:
    """The decoded columns of a batch.

    Attributes:
        columns: raw columns by name.
        splits: int8 `[rows]`; None if not requested, or if the split is not by hash.
        problems: by rejected row, the column's label and its problem.
    """

    columns: dict[str, np.ndarray | pa.BinaryArray]
    splits: np.ndarray | None
    problems: dict[int, tuple[str, CellError]]


def decode_columns(
    cells: dict[int, pa.BinaryArray], items: tuple[ItemColumns, ...], schema: Schema, rows: int, *, with_split: bool
) -> DecodedColumns:
    """Decodes the cells of `rows` records.

    Args:
        cells: binary `[rows]` by position in the file.
        items: the positions that each feature is read from.
        schema: the schema of the columns.
        rows: the number of records.
        with_split: also compute the split by hash (int8 `[rows]`); has no effect on a split by file.
    """
    by_name = {item.name: item for item in schema.items}
    split = schema.split if with_split and isinstance(schema.split, HashSplit) else None
    columns: dict[str, np.ndarray | pa.BinaryArray] = {}
    hashed: list[np.ndarray] = []
    problems: dict[int, tuple[str, CellError]] = {}
    for place in items:
        item = by_name[place.name]
        missing = missing_tokens(item.tokens(schema.csv.missing))
        in_split = split is not None and (place.name in split.by if split.by != "row" else item.raw is not None)
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
) -> ColumnValues:
    match item:
        case CategoryLabel():
            return _category_label(item, cells[0], place, missing, hashing=hashing)
        case ReadAsNumbers():
            return _numbers(item, cells, place, missing, hashing=hashing, rows=rows)
        case ReadAsStrings():
            return _strings(item, cells[0], place, missing, hashing=hashing)
        case Ignore():
            parts = [distinct(c, missing.tokens, words=True) for c in cells]
            hashes = [hash_distinct(p.canonical, p.codes) for p in parts]
            return ColumnValues(None, hashes[0] if len(hashes) == 1 else hash_rows(hashes), {})
        case Cross():
            raise AssertionError("a cross has no column")
        case _:
            assert_never(item)


def _matrix(
    cells: list[pa.BinaryArray], place: ItemColumns, missing: MissingTokens, rows: int, *, if_absent: str | None
) -> tuple[np.ndarray, dict[int, tuple[str, CellError]]]:
    """float32 `[rows, k]`, and the problems by row."""
    values = None
    if len(cells) > 1:  # one call for all: with hundreds of columns, the calls would dominate
        values = clean_numbers(pa.concat_arrays(cells), missing)
    if values is not None:
        return np.ascontiguousarray(values.reshape(len(cells), rows).T, np.float32), {}
    matrix = np.empty((rows, len(cells)), np.float32)
    problems: dict[int, tuple[str, CellError]] = {}
    for j, (column, label) in enumerate(zip(cells, place.labels, strict=True)):
        matrix[:, j], errors = numbers(column, missing, if_absent=if_absent)
        for row, problem in errors.items():
            problems.setdefault(row, (label, problem))
    return matrix, problems


def _numbers(
    item: ReadAsNumbers,
    cells: list[pa.BinaryArray],
    place: ItemColumns,
    missing: MissingTokens,
    *,
    hashing: bool,
    rows: int,
) -> ColumnValues:
    matrix, problems = _matrix(cells, place, missing, rows, if_absent=item.if_missing)
    for row, error in item.row_errors(matrix):
        problems.setdefault(row, (place.labels[0], error))
    return ColumnValues(matrix, item.split_values(matrix) if hashing else None, problems)


def _strings(
    item: ReadAsStrings, cells: pa.BinaryArray, place: ItemColumns, missing: MissingTokens, *, hashing: bool
) -> ColumnValues:
    column = distinct(cells, missing.tokens, words=not item.splits_into_words)
    canonical, problems = read_values(column, item)
    problems |= not_utf8(column)
    if isinstance(item, Text):
        problems |= too_long(column, item.max_bytes)
    if item.in_vocabulary:
        problems |= vocabulary_errors(column.trimmed, empty_reason=item.if_missing)
    if item.if_missing is not None:
        problems = absent_values(column, item.if_missing) | problems
    hashed = hash_distinct(canonical, column.codes) if hashing else None
    return ColumnValues(column.cells(cells), hashed, _at(place, rows_of(problems, column.codes)))


def _category_label(
    item: CategoryLabel, cells: pa.BinaryArray, place: ItemColumns, missing: MissingTokens, *, hashing: bool
) -> ColumnValues:
    column = distinct(cells, missing.tokens, words=True)
    canonical, problems = label_values(column, item)
    if item.values is None:
        words = pa.array(canonical, pa.binary())
        invalid = not_utf8(column) | vocabulary_errors(words, empty_reason="missing_label")
        problems = invalid | problems
    hashed = hash_distinct(canonical, column.codes) if hashing else None
    return ColumnValues(take(canonical, column.codes), hashed, _at(place, rows_of(problems, column.codes)))


def _at(place: ItemColumns, problems: dict[int, CellError]) -> dict[int, tuple[str, CellError]]:
    return {row: (place.labels[0], problem) for row, problem in problems.items()}


SAMPLED = 1024  # rows


def count_distinct_numbers(
    cells: dict[int, pa.BinaryArray],
    items: tuple[ItemColumns, ...],
    decoded: dict[str, np.ndarray | pa.BinaryArray],
) -> DistinctNumbers:
    """Counts the distinct numbers of the first rows of a batch, before and after they became float32.

    Args:
        cells: binary `[rows]` by position in the file.
        items: the positions that each feature is read from.
        decoded: the raw columns of these cells, by name.
    """
    counts: DistinctNumbers = {}
    for item in items:
        matrix = decoded.get(item.name)
        if isinstance(matrix, np.ndarray):
            for place, position in enumerate(item.positions):
                counted = distinct_counts(cells[position][:SAMPLED], matrix[:SAMPLED, place])
                if counted is not None:
                    counts[f"{place} {item.name}"] = counted
    return counts
