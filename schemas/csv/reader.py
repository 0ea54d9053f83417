"""Reads ranges of CSV files as Arrow batches of raw columns, and accounts for every record.

Reads a range of a CSV file as blocks of complete records, for any sizes of ranges, blocks and records.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas import storage
from schemas.concurrency import one_behind
from schemas.csv.decode import DecodedColumns, count_distinct_numbers, decode_columns
from schemas.csv.file import MAX_RECORD_BYTES, CsvFile, CsvRange, cell_position
from schemas.csv.lines import START, CsvRecords, QuotedScanner, find_lines, in_utf8
from schemas.csv.parse import Dialect, Parsed, parse_records, split_fields
from schemas.csv.stream import Reader, StoredFile, open_stream
from schemas.errors import MillraceError
from schemas.rejects import Reject
from schemas.rows import BATCH_BYTES, Decoded, batch_schema, list_array
from schemas.spec.forms import CellError
from schemas.spec.split_hash import file_split
from schemas.spec.table import CsvOptions, FileSplit, Schema, raw_columns
from schemas.storage.content import DigestedBlocks

HEAD_BYTES = 4096  # how much of an overlong record its reject holds


@dataclasses.dataclass(frozen=True)
class Block:
    """Records in file order, and (offset, beginning) of each record that is too long.

    `consumed`: how many bytes of the range, as the file is stored, were read for this block and those before it.
    `digests`: those of the range, of a last block without records.
    """

    records: CsvRecords
    too_long: list[tuple[int, bytes]]
    consumed: int = 0
    digests: Mapping[int, str] = dataclasses.field(default_factory=dict)


_NO_RECORDS = CsvRecords(b"", 0, np.empty(0, np.int64), np.empty(0, np.int64))


def read_blocks(
    part: CsvRange,
    options: CsvOptions,
    *,
    block_bytes: int,
    max_record_bytes: int = MAX_RECORD_BYTES,
    digests: bool = False,
) -> Generator[Block, None, None]:
    """Yields the records that begin in a range. Takes memory for a few blocks and a few records of the maximum size."""
    file = part.file
    first = part.start == file.data_start
    # One byte earlier: a line begins at `start` if the byte before it is a line feed.
    position = part.start if first else part.start - 1
    begin = 0 if file.mode == "stream" or (first and digests) else position
    reader: Reader = StoredFile(file.path, version=file.version, position=begin)
    digested = None
    if digests:
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
        digest_by_block = {} if digested is None else digested.digests()
        if storage.is_local(file.path):  # in a bucket, every request names the version
            storage.check_version(file.path, file.version, storage.stat(file.path).version)
        if digest_by_block:
            yield Block(_NO_RECORDS, [], reader.consumed, digest_by_block)
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
            line_end = pending.find(b"\n")
            if line_end < 0:
                offset += len(pending)
                pending = b""
                if final or (end is not None and offset >= end):
                    return
                continue
            offset, pending, inside = offset + line_end + 1, pending[line_end + 1 :], False
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
            records = CsvRecords(block[:cut], offset, starts[keep], line_ends[keep])
        else:
            records = CsvRecords(b"", offset, np.empty(0, np.int64), np.empty(0, np.int64))
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
    records: CsvRecords, lengths: np.ndarray, max_record_bytes: int, too_long: list[tuple[int, bytes]]
) -> Block:
    long = lengths > max_record_bytes
    if not long.any():
        return Block(records, too_long)
    heads = []
    data = bytearray(records.data)
    for i in np.flatnonzero(long).tolist():
        begin, end = int(records.starts[i]), int(records.ends[i])
        heads.append(
            (records.offset + begin, _head(records.data[begin : min(end, begin + HEAD_BYTES)], max_record_bytes))
        )
        data[begin:end] = b"\n" * (end - begin)  # empty lines instead: all other offsets stay valid
    rest = CsvRecords(bytes(data), records.offset, records.starts[~long], records.ends[~long])
    return Block(rest, heads + too_long)


_THREADS = 2  # that decode pieces of a batch in parallel
_REPEATED_HEADER = CellError("repeated_header", "found the names of the columns, as in the header; expected a record")
_PIECE_BYTES = 1 << 20  # parsed and decoded at once; small enough for the CPU cache


def read_range(
    part: CsvRange,
    schema: Schema,
    *,
    batch_bytes: int = BATCH_BYTES,
    with_split: bool = False,
    max_record_bytes: int = MAX_RECORD_BYTES,
    digests: bool = False,
    cells: Sequence[str] = (),
) -> Generator[Decoded, None, None]:
    """Reads the records that begin in a range.

    The rows and rejects do not depend on how a file is cut into ranges and batches.

    Args:
        part: a range of `split_ranges`.
        schema: the schema that the file was opened with.
        batch_bytes: the approximate size of a batch, in bytes of the file.
        with_split: adds the column `_split`, by the schema's hash or by the file's name.
        max_record_bytes: a longer record is rejected as record_too_long.
        digests: see `schemas.rows.Decoded`.
        cells: columns of the file whose cells are added as they stand there; see `schemas.rows.cell_field`.

    Raises:
        MillraceError: the file cannot be read or has changed since it was opened, or the count of records is wrong.
        UsageError: the split is by file, and the file matches no pattern or several.
    """
    reader = RecordDecoder(part.file, schema, with_split=with_split, cells=cells)
    blocks = read_blocks(part, schema.csv, block_bytes=batch_bytes, max_record_bytes=max_record_bytes, digests=digests)
    small = not part.file.gzip and (part.end or part.file.size) - part.start <= _PIECE_BYTES
    with contextlib.closing(blocks):
        filled = (block for block in blocks if len(block.records) or block.too_long or block.digests)
        for block, decoded in _decode_here(filled, reader) if small else _decode_in_threads(filled, reader):
            yield reader.joined(block, decoded, max_record_bytes)


def _decode_here(blocks: Iterator[Block], reader: RecordDecoder) -> Iterator[tuple[Block, list[Decoded]]]:
    """For a range of one piece: starting a thread takes longer than decoding a few rows."""
    for block in blocks:
        yield block, [reader.decode(piece, counting=not i) for i, piece in enumerate(pieces_of(block.records))]


def _decode_in_threads(blocks: Iterator[Block], reader: RecordDecoder) -> Iterator[tuple[Block, list[Decoded]]]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="csv") as pool:

        def begin(block: Block) -> tuple[Block, list[Future[Decoded]]]:
            pieces = enumerate(pieces_of(block.records))
            return block, [pool.submit(reader.decode, piece, counting=not i) for i, piece in pieces]

        try:
            for block, pieces in one_behind(map(begin, blocks)):
                yield block, [piece.result() for piece in pieces]
        finally:
            pool.shutdown(cancel_futures=True)


def pieces_of(records: CsvRecords) -> Iterator[CsvRecords]:
    """Cuts records into pieces of about _PIECE_BYTES."""
    first, count = 0, len(records)
    while first < count:
        begin = int(records.starts[first])
        last = max(first + 1, int(np.searchsorted(records.starts, begin + _PIECE_BYTES)))
        end = int(records.ends[last - 1])
        starts, ends = records.starts[first:last] - begin, records.ends[first:last] - begin
        yield CsvRecords(records.data[begin:end], records.offset + begin, starts, ends)
        first = last


class RecordDecoder:
    """Decodes records of one file to rows. Holds what all batches share; thread-safe."""

    def __init__(self, file: CsvFile, schema: Schema, *, with_split: bool, cells: Sequence[str] = ()) -> None:
        self._file, self._schema, self._with_split = file, schema, with_split
        options = schema.csv
        self._dialect = Dialect(options.delimiter, options.quote, lines=not file.quoted_newlines)
        self._cells = tuple(cell_position(file, schema, name) for name in cells)
        self._positions = sorted({*(p for item in file.columns for p in item.positions), *self._cells})
        self._header = None if file.header is None else [n.encode("utf-8", "surrogateescape") for n in file.header]
        present = {item.name for item in file.columns}
        self._columns = tuple(c for c in raw_columns(schema) if c.name in present)
        self._file_split = (
            file_split(file.path, schema.split) if with_split and isinstance(schema.split, FileSplit) else None
        )

    def decode(self, records: CsvRecords, *, offsets: np.ndarray | None = None, counting: bool = False) -> Decoded:
        """Decodes one piece.

        Args:
          records: the records.
          offsets: where they are in the file, int64 `[n]`; None: where `records` says.
          counting: count the distinct numbers of the first rows.
        """
        offsets = records.offset + records.starts if offsets is None else offsets
        text = in_utf8(records) if self._file.codec == "latin-1" else records
        width = self._file.num_columns
        parsed = parse_records(text, self._dialect, width=width, positions=self._positions)
        rows = len(parsed.rows)
        decoded = decode_columns(parsed.columns, self._file.columns, self._schema, rows, with_split=self._with_split)
        problems: dict[int, tuple[str | None, CellError]] = {**decoded.problems}
        problems |= dict.fromkeys(self._repeated_headers(text, parsed), (None, _REPEATED_HEADER))
        bad: list[tuple[int, str, str | None, CellError]] = [
            (index, "parse", None, CellError(reason, detail)) for index, reason, detail in parsed.bad
        ]
        bad += [(int(parsed.rows[row]), "decode", column, problem) for row, (column, problem) in problems.items()]
        rejects = [
            Reject(self._file.path, int(offsets[i]), stage, why.reason, column, why.detail, records.raw(i))
            for i, stage, column, why in bad
        ]
        batch = self._batch(decoded, problems, offsets[parsed.rows], [parsed.columns[p] for p in self._cells])
        numbers = count_distinct_numbers(parsed.columns, self._file.columns, decoded.columns) if counting else {}
        return Decoded(batch, rejects, len(records), distinct_numbers=numbers)

    def _repeated_headers(self, records: CsvRecords, parsed: Parsed) -> list[int]:
        """The rows that are the file's header again, as where files were joined. One column's may be a value."""
        header = self._header
        if header is None or len(header) < 2 or not self._positions:
            return []
        last = self._positions[-1]
        names = pa.array([header[last], codecs.BOM_UTF8 + header[last]], pa.binary())
        rows = np.flatnonzero(np.asarray(pc.is_in(parsed.columns[last], names)))
        dialect = self._dialect

        def fields(row: int) -> list[bytes] | str:
            record = records.raw(int(parsed.rows[row])).removeprefix(codecs.BOM_UTF8)
            return split_fields(record, dialect.delimiter, dialect.quote)

        return [row for row in rows.tolist() if fields(row) == header]

    def _batch(
        self, decoded: DecodedColumns, rejected: Collection[int], offsets: np.ndarray, cells: list[pa.BinaryArray]
    ) -> pa.RecordBatch:
        extra = [pa.array(offsets, pa.int64())]
        if self._file_split is not None:
            extra.append(pa.array(np.full(len(offsets), self._file_split, np.int8)))
        elif decoded.splits is not None:
            extra.append(pa.array(decoded.splits, pa.int8()))
        extra += cells
        keep = None
        if rejected:
            good = np.ones(len(offsets), bool)
            good[list(rejected)] = False
            keep = np.flatnonzero(good)
            extra = [array.take(pa.array(keep)) for array in extra]
        arrays = [list_array(decoded.columns[c.name], keep) for c in self._columns]
        return pa.RecordBatch.from_arrays(arrays + extra, schema=self._arrow_schema())

    def _arrow_schema(self) -> pa.Schema:
        return batch_schema(self._columns, with_split=self._with_split, cells=len(self._cells))

    def joined(self, block: Block, pieces: list[Decoded], max_record: int) -> Decoded:
        """Joins a block's pieces to one batch, after checking that no record is missing."""
        rejects = [reject for piece in pieces for reject in piece.rejects]
        detail = f"longer than {max_record} bytes; the first {HEAD_BYTES} are kept"
        for offset, head in block.too_long:
            rejects.append(Reject(self._file.path, offset, "parse", "record_too_long", None, detail, head))
        rejects.sort(key=lambda reject: reject.offset)
        read = len(block.records) + len(block.too_long)
        batch = pa.concat_batches([piece.batch for piece in pieces]) if pieces else self.empty()
        if read != batch.num_rows + len(rejects):
            raise MillraceError(
                f"{self._file.path}: {read} records near byte {block.records.offset}, but {batch.num_rows} rows and "
                f"{len(rejects)} rejects; this is a bug in the reader; nothing was used"
            )
        distinct_numbers = pieces[0].distinct_numbers if pieces else {}
        return Decoded(batch, rejects, read, block.consumed, distinct_numbers, block.digests)

    def empty(self) -> pa.RecordBatch:
        """Returns a batch without rows."""
        return pa.RecordBatch.from_pylist([], schema=self._arrow_schema())
