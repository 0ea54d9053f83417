"""CSV as a row format: records read by ranges, again by their offsets, or corrected without their file.

Corrected records are decoded exactly as the file's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas.csv.file import MAX_RECORD_BYTES, CsvFile, CsvRange, cell_position, items_of, open_csv, split_ranges
from schemas.csv.header import header_layout, positional_layout
from schemas.csv.lines import START, CsvRecords, QuotedScanner
from schemas.csv.parse import join_fields
from schemas.csv.reader import RecordDecoder, pieces_of, read_blocks, read_range
from schemas.errors import MillraceError
from schemas.rejects import Reject
from schemas.rows import Decoded
from schemas.spec.forms import CellError
from schemas.spec.table import Schema


def csv_from_manifest(path: str, schema: Schema, *, encoding: str, header: tuple[str, ...] | None) -> CsvFile:
    """Rebuilds what `open_csv` returned for a file, from its entry in the manifest. The file may be gone.

    Args:
        path: the path in the manifest; it decides the split if the schema splits by file.
        schema: the schema that the file was read with.
        encoding: the file's `CsvFile.codec`.
        header: the names in its first line; None if it had no header.
    """
    items = items_of(schema, prediction=False)
    if header is not None:
        columns, width = header_layout(path, header, schema, items)
    else:
        columns, width = positional_layout(path, schema.csv.width or 0, schema, items, prediction=False)
    quoted = schema.csv.quoted_newlines
    return CsvFile(path, encoding, num_columns=width, columns=columns, header=header, quoted_newlines=quoted)


def decode_records(
    file: CsvFile,
    schema: Schema,
    raws: Sequence[bytes],
    offsets: Sequence[int],
    *,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Decoded:
    """Decodes single records by the same steps as a whole file.

    Args:
        file: the file that the records belong to.
        schema: the schema that the file was opened with.
        raws: the records' bytes, in the file's encoding (UTF-8 for UTF-16); trailing line ends are ignored.
        offsets: the records' offsets in the file, copied to the rows and rejects.
        max_record_bytes: a longer record is rejected as record_too_long.

    Returns:
        A row or a reject for each record. Reasons are those of `read_range`, and `not_one_record` for bytes that are
        not exactly one record.
    """
    rejects: list[Reject] = []
    lines: list[bytes] = []
    places: list[int] = []
    for raw, offset in zip(raws, offsets, strict=True):
        line = raw.rstrip(b"\r\n")
        problem = _problem(line, schema, file.quoted_newlines, max_record_bytes)
        if problem is None:
            lines.append(line)
            places.append(offset)
        else:
            rejects.append(Reject(file.path, offset, "parse", problem.reason, None, problem.detail, raw))
    decoder = RecordDecoder(file, schema, with_split=True)
    lengths = np.array([len(line) for line in lines], np.int64)
    ends = np.cumsum(lengths + 1) - 1
    batches, first = [decoder.empty()], 0
    for piece in pieces_of(CsvRecords(b"".join(line + b"\n" for line in lines), 0, ends - lengths, ends)):
        decoded = decoder.decode(piece, offsets=np.array(places[first : first + len(piece)], np.int64))
        first += len(piece)
        batches.append(decoded.batch)
        rejects += decoded.rejects
    return Decoded(pa.concat_batches(batches), sorted(rejects, key=lambda reject: reject.offset), len(raws))


def _problem(line: bytes, schema: Schema, quoted_newlines: bool, max_record_bytes: int) -> CellError | None:
    """Why these bytes are not one record; None if they are."""
    if not line:
        return CellError("not_one_record", "found nothing, expected one record")
    if len(line) > max_record_bytes:
        return CellError("record_too_long", f"longer than {max_record_bytes} bytes")
    if not quoted_newlines and b"\n" in line:
        detail = "found a line end inside, and the schema declares no quoted newlines; expected one record"
        return CellError("not_one_record", detail)
    if quoted_newlines:
        scanner = QuotedScanner(delimiter=schema.csv.delimiter, quote=schema.csv.quote)
        if scanner.scan(line, 0, START)[0] >= 0:
            return CellError("not_one_record", "found a line end outside quotes, expected one record")
    return None


def read_records(
    file: CsvFile, schema: Schema, offsets: Iterable[int], *, block_bytes: int = 1 << 20
) -> dict[int, bytes]:
    """Reads the raw bytes of the records that begin at `offsets`. A stream is read only once for all of them.

    Raises:
        MillraceError: no record begins at an offset: the file has changed.
    """
    places = np.array(sorted(set(offsets)), np.int64)
    raw_by_offset: dict[int, bytes] = {}
    if file.mode == "stream":
        parts = [CsvRange(file, file.data_start, None)] if len(places) else []
    else:
        parts = [CsvRange(file, offset, offset + 1) for offset in places.tolist()]
    for part in parts:
        for block in read_blocks(part, schema.csv, block_bytes=block_bytes):
            records = block.records
            starts = records.offset + records.starts
            for i in np.flatnonzero(np.isin(starts, places)).tolist():
                raw_by_offset[int(starts[i])] = records.raw(i)
            if len(raw_by_offset) == len(places):
                return raw_by_offset
    lost = sorted(set(places.tolist()) - set(raw_by_offset))
    if lost:
        raise MillraceError(f"{file.path}: no record begins at byte {lost[0]}; the file was changed while it was read")
    return raw_by_offset


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
        """Encodes a record as a line, without its line end."""
        fields = [b""] * file.num_columns
        for item in file.columns:
            for position, cell in zip(item.positions, cells.get(item.name, ()), strict=False):
                fields[position] = cell
        return join_fields(fields, schema.csv.delimiter, schema.csv.quote)
