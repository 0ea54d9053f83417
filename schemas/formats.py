"""The formats that rows are read from. A format is one class in a room of its own, and one line in this table."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.csv import text
from schemas.csv.rows import CsvRows
from schemas.rows import AnyRowFormat
from schemas.spec.table import Schema

# By a schema's `format`, whose names `schemas.spec.table.RowFormatName` lists.
ROW_FORMATS: Mapping[str, AnyRowFormat] = {"csv": CsvRows()}

__all__ = ["ROW_FORMATS", "row_format", "text"]  # `text`: lines of cells, which a store of requests is written in


def row_format(schema: Schema) -> AnyRowFormat:
    """The format that a schema's files are in."""
    return ROW_FORMATS[schema.format]
