"""The formats that rows are read from. A format is one class in a room of its own, and one line in this table."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.csv.rows import CsvRows
from schemas.rows import AnyRowFormat
from schemas.spec.table import Schema

# By a schema's `format`, whose names `schemas.spec.table.RowFormatName` lists.
ROW_FORMATS: Mapping[str, AnyRowFormat] = {"csv": CsvRows()}


def row_format(schema: Schema) -> AnyRowFormat:
    """The format that a schema's files are in."""
    return ROW_FORMATS[schema.format]
