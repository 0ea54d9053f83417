"""One record of a CSV file, found again by its offset."""

from __future__ import annotations

import numpy as np

from schemas.csv_blocks import read_blocks
from schemas.csv_file import CsvFile, CsvRange
from schemas.errors import MillraceError
from schemas.schema import Schema


def read_record(file: CsvFile, schema: Schema, offset: int, *, block_bytes: int = 1 << 20) -> bytes:
    """The raw bytes of the record that begins at `offset`. A file that is read as a stream is read up to there.

    Raises:
        MillraceError: no record begins there: the file was changed.
    """
    whole = file.mode == "stream"
    part = CsvRange(file, file.data_start, None) if whole else CsvRange(file, offset, offset + 1)
    for block in read_blocks(part, schema.csv, block_bytes=block_bytes):
        records = block.records
        i = int(np.searchsorted(records.starts, offset - records.offset))
        if i < len(records) and records.offset + records.starts[i] == offset:
            return records.raw(i)
    raise MillraceError(f"{file.path}: no record begins at byte {offset}; the file was changed while it was read")
