"""The formats that rows are read from. A format is one class in a room of its own, and one line in this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.csv import text
from schemas.csv.rows import CsvRows
from schemas.errors import UsageError
from schemas.rows import AnyRowFormat, RowFile
from schemas.spec.table import Schema

# By a schema's `format`, whose names `schemas.spec.table.RowFormatName` lists.
ROW_FORMATS: Mapping[str, AnyRowFormat] = {"csv": CsvRows()}

# `text`: lines of cells, which a store of requests is written in
__all__ = ["ROW_FORMATS", "check_not_empty", "row_format", "text"]


def check_not_empty(files: Sequence[RowFile]) -> None:
    """Refuses files that are all empty, or a header alone.

    Raises:
      UsageError: they are.
    """
    if files and not any(file.covers for file in files):
        raise UsageError(f"{files[0].path}: the input contains no records; expected at least one")


def row_format(schema: Schema) -> AnyRowFormat:
    """Returns the format that a schema's files are in."""
    return ROW_FORMATS[schema.format]
