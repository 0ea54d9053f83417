"""Reads records of a CSV file again, by their offsets."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from schemas.csv.blocks import read_blocks
from schemas.csv.file import CsvFile, CsvRange
from schemas.errors import MillraceError
from schemas.spec.table import Schema


def read_records(
    file: CsvFile, schema: Schema, offsets: Iterable[int], *, block_bytes: int = 1 << 20
) -> dict[int, bytes]:
    """The raw bytes of the records that begin at `offsets`. A stream is read only once for all of them.

    Raises:
        MillraceError: no record begins at an offset: the file has changed.
    """
    wanted = np.array(sorted(set(offsets)), np.int64)
    found: dict[int, bytes] = {}
    if file.mode == "stream":
        parts = [CsvRange(file, file.data_start, None)] if len(wanted) else []
    else:
        parts = [CsvRange(file, offset, offset + 1) for offset in wanted.tolist()]
    for part in parts:
        for block in read_blocks(part, schema.csv, block_bytes=block_bytes):
            records = block.records
            starts = records.offset + records.starts
            for i in np.flatnonzero(np.isin(starts, wanted)).tolist():
                found[int(starts[i])] = records.raw(i)
            if len(found) == len(wanted):
                return found
    lost = sorted(set(wanted.tolist()) - set(found))
    if lost:
        raise MillraceError(f"{file.path}: no record begins at byte {lost[0]}; the file was changed while it was read")
    return found
