"""CSV as a row format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.csv.corrections import csv_from_manifest, decode_records
from schemas.csv.fields import join_fields
from schemas.csv.file import CsvFile, open_csv, split_ranges
from schemas.csv.handed_through import cell_position
from schemas.csv.lookup import read_records
from schemas.csv.reader import read_range
from schemas.spec.table import Schema


class CsvRows:
    """See `schemas.rows.RowFormat`."""

    open_file = staticmethod(open_csv)
    plan_ranges = staticmethod(split_ranges)
    cell_position = staticmethod(cell_position)
    read_range = staticmethod(read_range)
    read_records = staticmethod(read_records)
    file_from_manifest = staticmethod(csv_from_manifest)
    decode_records = staticmethod(decode_records)

    @staticmethod
    def encode_record(file: CsvFile, schema: Schema, cells: Mapping[str, Sequence[bytes]]) -> bytes:
        """The record as a line, without its line end."""
        fields = [b""] * file.num_columns
        for item in file.columns.items:
            for position, cell in zip(item.positions, cells.get(item.name, ()), strict=False):
                fields[position] = cell
        return join_fields(fields, schema.csv.delimiter, schema.csv.quote)
