"""Reads every column of a CSV file as it is written, without a schema: to find out what a schema should say."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Generator

import numpy as np
import pyarrow as pa

from schemas.csv.file import CsvFile, CsvRange, read_beginning
from schemas.csv.lines import in_utf8
from schemas.csv.parse import Dialect, parse_records
from schemas.csv.reader import read_blocks
from schemas.spec.table import CsvOptions


@dataclasses.dataclass(frozen=True)
class ColumnBatch:
    """Some records of a file, in file order.

    Attributes:
        columns: binary `[n]` for each column, as written and without its quotes.
        offsets: int64 `[n]`, where each record begins in the file, decompressed.
        read: the number of records, invalid ones included.
        position: where the batch ends in the file, decompressed.
        consumed: how many bytes of the file, as it is stored, have been read.
        bad: by reason, the number of invalid records.
        fault: the byte offset of the first invalid record, and what is wrong with it; None: all are valid.
    """

    columns: tuple[pa.BinaryArray, ...]
    offsets: np.ndarray
    read: int
    position: int
    consumed: int
    bad: collections.Counter[str]
    fault: tuple[int, str] | None


def open_columns(path: str, options: CsvOptions, *, num_columns: int) -> CsvFile:
    """Opens a file all of whose columns are read.

    Args:
        path: a local path or gs://.
        options: how it is written; `header` is `present` or `none`.
        num_columns: the number of columns.

    Raises:
        UsageError: the first line is too long.
        MillraceError: the file cannot be read.
    """
    beginning = read_beginning(path, options)
    start, _, after = beginning.span
    present = options.header == "present"
    return dataclasses.replace(
        beginning.file,
        num_columns=num_columns,
        data_start=beginning.bom + (after if present else start),
        header=beginning.fields(options) if present else None,
    )


def read_columns(file: CsvFile, options: CsvOptions, *, block_bytes: int) -> Generator[ColumnBatch, None, None]:
    """Reads a file from its first record to its last, `block_bytes` at a time; takes some ten times that in memory.

    Raises:
        MillraceError: the file cannot be read, or was changed meanwhile.
    """
    end = None if file.mode == "stream" else file.size
    dialect = Dialect(options.delimiter, options.quote, lines=not file.quoted_newlines)
    blocks = read_blocks(CsvRange(file, file.data_start, end), options, block_bytes=block_bytes)
    with contextlib.closing(blocks):
        for block in blocks:
            records = in_utf8(block.records) if file.codec == "latin-1" else block.records
            parsed = parse_records(records, dialect, width=file.num_columns, positions=range(file.num_columns))
            offsets = block.records.offset + block.records.starts
            bad = [(int(offsets[index]), reason, detail) for index, reason, detail in parsed.bad]
            bad += [(offset, "record_too_long", "the record is longer than 16 MB") for offset, _ in block.too_long]
            yield ColumnBatch(
                columns=tuple(parsed.columns[i] for i in range(file.num_columns)),
                offsets=offsets[parsed.rows],
                read=len(block.records) + len(block.too_long),
                position=block.records.offset + len(block.records.data),
                consumed=block.consumed,
                bad=collections.Counter(reason for _, reason, _ in bad),
                fault=min(((offset, detail) for offset, _, detail in bad), default=None),
            )
