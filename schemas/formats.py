"""Lists the formats that rows are read from.

Each format is one class in a package of its own, and one line in this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.csv import text
from schemas.csv.rows import CsvRows
from schemas.errors import UsageError
from schemas.rows import AnyRowFormat, RowFile
from schemas.spec.table import Schema

# By the name that a schema has as its `format`. `schemas.spec.table.RowFormatName` lists the names.
ROW_FORMATS: Mapping[str, AnyRowFormat] = {"csv": CsvRows()}

# `text` writes lines of cells: a store of served requests has this format.
__all__ = ["ROW_FORMATS", "check_not_empty", "row_format", "text"]


def check_not_empty(files: Sequence[RowFile]) -> None:
    """Refuses an input of files that are all empty, or hold only a header.

    Raises:
      UsageError: all files are empty.
    """
    if files and not any(file.covers for file in files):
        raise UsageError(f"{files[0].path}: the input contains no records; expected at least one")


def row_format(schema: Schema) -> AnyRowFormat:
    """Returns the format of a schema's files."""
    return ROW_FORMATS[schema.format]
