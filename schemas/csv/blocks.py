"""Reads a range of a CSV file as blocks of complete records, for any sizes of ranges, blocks and records."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator

import numpy as np

from schemas import storage
from schemas.csv.file import MAX_RECORD_BYTES, CsvRange
from schemas.csv.lines import START, QuotedScanner, Records, find_lines
from schemas.csv.stream import Reader, open_at, open_stream
from schemas.rows import Digests
from schemas.spec.table import CsvOptions
from schemas.storage.content import DigestedBlocks

HEAD_BYTES = 4096  # how much of an overlong record its reject holds


@dataclasses.dataclass(frozen=True)
class Block:
    """Records in file order, and (offset, beginning) of each record that is too long.

    `consumed`: how many bytes of the range, as the file is stored, were read for this block and those before it.
    """

    records: Records
    too_long: list[tuple[int, bytes]]
    consumed: int = 0


def read_blocks(
    part: CsvRange,
    options: CsvOptions,
    *,
    block_bytes: int,
    max_record_bytes: int = MAX_RECORD_BYTES,
    digests: Digests | None = None,
) -> Generator[Block, None, None]:
    """Yields the records that begin in a range. Takes memory for a few blocks and a few records of the maximum size."""
    file = part.file
    first = part.start == file.data_start
    # One byte earlier: a line begins at `start` if the byte before it is a line feed.
    position = part.start if first else part.start - 1
    begin = 0 if file.mode == "stream" or (first and digests is not None) else position
    reader: Reader = open_at(file.path, version=file.version, position=begin)
    digested = None
    if digests is not None:
        reader = digested = DigestedBlocks(reader, position=begin, start=0 if first else part.start, end=part.end)
    if file.mode == "stream":
        reader = open_stream(
            file.path,
            source=reader,
            version=file.version,
            size=file.size,
            gzipped=file.gzip,
            codec=file.codec,
            lone_cr=file.lone_cr,
            max_ratio=file.max_input_ratio,
        )
    try:
        if file.mode == "stream" or begin != position:
            _skip(reader, part.start)
            position = part.start
        if file.quoted_newlines:
            blocks = _quoted_blocks(reader, position, options, block_bytes, max_record_bytes)
        else:
            inside = position != part.start
            sizes = {"block_bytes": block_bytes, "max_record_bytes": max_record_bytes}
            blocks = _line_blocks(reader, position, part.end, inside=inside, **sizes)
        for block in blocks:
            yield dataclasses.replace(block, consumed=reader.consumed)
        found = {} if digested is None else digested.digests()
        if storage.is_local(file.path):  # in a bucket, every request names the version
            storage.check_version(file.path, file.version, storage.stat(file.path).version)
        if digests is not None:
            digests(found)
    finally:
        reader.close()


def _skip(reader: Reader, count: int) -> None:
    while count and (data := reader.read(min(count, 1 << 20))):
        count -= len(data)


def _line_blocks(
    reader: Reader, position: int, end: int | None, *, inside: bool, block_bytes: int, max_record_bytes: int
) -> Iterator[Block]:
    """Lines that begin before `end`; `inside`: the bytes up to the next line feed belong to an earlier line."""
    pending = b""
    offset = position  # of pending
    while True:
        size = block_bytes
        if end is not None and offset + len(pending) < end:
            size = min(size, end - offset - len(pending))
        elif end is not None:
            size = min(size, 1 << 16)  # only the rest of the last line is needed
        data = reader.read(size)
        final = not data
        pending += data
        if inside:
            found = pending.find(b"\n")
            if found < 0:
                offset += len(pending)
                pending = b""
                if final or (end is not None and offset >= end):
                    return
                continue
            offset, pending, inside = offset + found + 1, pending[found + 1 :], False
        if end is not None and offset >= end:
            return
        cut = len(pending) if final else pending.rfind(b"\n") + 1
        if end is not None and offset + len(pending) >= end:
            last = pending.find(b"\n", end - 1 - offset)  # ends the last line that begins before `end`
            if last >= 0:
                cut, final = last + 1, True
        too_long: list[tuple[int, bytes]] = []
        complete, pending, start = pending[:cut], pending[cut:], offset
        offset += cut
        if len(pending) > max_record_bytes and not final:
            too_long.append((offset, _head(pending, max_record_bytes)))
            offset, pending, inside = offset + len(pending), b"", True
        if complete or too_long:
            records, lengths = find_lines(complete, start)
            yield _without_long(records, lengths, max_record_bytes, too_long)
        if final:
            return


def _quoted_blocks(
    reader: Reader, position: int, options: CsvOptions, block_bytes: int, max_record_bytes: int
) -> Iterator[Block]:
    """Records that may contain line ends inside quotes."""
    scanner = QuotedScanner(delimiter=options.delimiter, quote=options.quote)
    pending = bytearray()
    offset, state, scanned, size = position, START, 0, block_bytes
    skipping = False
    while True:
        data = reader.read(size)
        final = not data
        if skipping:  # inside an overlong record: look for its end only
            end, state = scanner.scan(data, 0, state)
            if end < 0:
                offset += len(data)
                if final:
                    return
                continue
            offset, data, state, skipping = offset + end + 1, data[end + 1 :], START, False
        pending += data
        block = bytes(pending)
        line_ends, state = scanner.boundaries(block, state, scanned)
        if final and block:
            line_ends = np.append(line_ends, len(block))
        cut = min(int(line_ends[-1]) + 1, len(block)) if len(line_ends) else 0
        too_long: list[tuple[int, bytes]] = []
        if cut:
            starts = np.concatenate([[0], line_ends[:-1] + 1])
            keep = line_ends > starts
            records = Records(block[:cut], offset, starts[keep], line_ends[keep])
        else:
            records = Records(b"", offset, np.empty(0, np.int64), np.empty(0, np.int64))
        pending, offset = bytearray(block[cut:]), offset + cut
        scanned = len(pending)
        size = block_bytes if cut else max(block_bytes, len(pending))  # doubling: a long record is rescanned rarely
        if len(pending) > max_record_bytes:
            too_long.append((offset, _head(bytes(pending), max_record_bytes)))
            offset, pending, scanned, skipping = offset + len(pending), bytearray(), 0, True
        if cut or too_long:
            yield _without_long(records, records.ends - records.starts, max_record_bytes, too_long)
        if final:
            return


def _head(record: bytes, max_record_bytes: int) -> bytes:
    """The beginning of an overlong record, the same whether or not its line end has been read yet."""
    return record[: min(HEAD_BYTES, max_record_bytes)].rstrip(b"\r")


def _without_long(
    records: Records, lengths: np.ndarray, max_record_bytes: int, too_long: list[tuple[int, bytes]]
) -> Block:
    long = lengths > max_record_bytes
    if not long.any():
        return Block(records, too_long)
    found = []
    data = bytearray(records.data)
    for i in np.flatnonzero(long).tolist():
        begin, end = int(records.starts[i]), int(records.ends[i])
        found.append(
            (records.offset + begin, _head(records.data[begin : min(end, begin + HEAD_BYTES)], max_record_bytes))
        )
        data[begin:end] = b"\n" * (end - begin)  # empty lines instead: all other offsets stay valid
    rest = Records(bytes(data), records.offset, records.starts[~long], records.ends[~long])
    return Block(rest, found + too_long)
