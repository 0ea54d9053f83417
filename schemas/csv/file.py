"""Opens a CSV file: detects its compression, encoding and header, and finds the position of each raw column.

A file that is no CSV is known by how it begins: an image, a zip archive, JSON. Cells can also be handed through as they
stand there, whatever the schema reads of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Sequence
from typing import Literal

from schemas import storage
from schemas.csv.header import Layout, header_layout, ignored_columns, is_header, layout_by_names, positional_layout
from schemas.csv.lines import START, QuotedScanner
from schemas.csv.parse import split_fields
from schemas.csv.stream import GZIP_MAGIC, MAX_INPUT_RATIO, Reader, open_stream
from schemas.errors import UsageError
from schemas.spec.features import Feature, Label
from schemas.spec.naming import file_name
from schemas.spec.table import CsvOptions, Schema
from schemas.storage.json_files import parse_json

_CONTROLS = bytes(code for code in (*range(9), *range(14, 32)) if code != 27)

# Each begins with bytes that no text has, or with letters (marked False) which count only if control codes follow.
_MAGICS = (
    (b"PK\x03\x04", True, "a zip archive; unpack it first (an Excel workbook is one: save it as CSV)"),
    (b"PAR1", False, "a Parquet file; write its rows as CSV"),
    (b"ARROW1\x00\x00", True, "an Arrow file; write its rows as CSV"),
    (b"ORC", False, "an ORC file; write its rows as CSV"),
    (b"SQLite format 3\x00", True, "an SQLite database; export its table as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", True, "an old Excel or Word file; save it as CSV"),
    (b"%PDF-", False, "a PDF"),
    (b"BZh", False, "compressed by bzip2; decompress it, or compress it by gzip"),
    (b"\xfd7zXZ\x00", True, "compressed by xz; decompress it, or compress it by gzip"),
    (b"\x28\xb5\x2f\xfd", True, "compressed by zstd; decompress it, or compress it by gzip"),
    (b"\x89HDF\r\n\x1a\n", True, "an HDF5 file"),
    (b"\x93NUMPY", True, "a NumPy file"),
    (b"\x7fELF", True, "a program"),
    (b"\x89PNG\r\n\x1a\n", True, "a PNG image"),
    (b"\xff\xd8\xff", True, "a JPEG image"),
    (b"GIF8", False, "a GIF image"),
)


_JSON = "JSON; write its records as CSV, such as by pandas.read_json(...).to_csv(...), with lines=True for JSON lines"
_OBJECT = re.compile(rb'\s*(\[\s*)?\{\s*"([^"\\]|\\.)*"\s*:')


def binary_kind(data: bytes) -> str | None:
    """Returns what a file is that is certainly no CSV, by its first bytes.

    Args:
        data: the first bytes, decompressed if the file is gzip'd. The first 4,096 are looked at; of JSON, the
            first line.

    Returns:
        Such as "a zip archive; unpack it first"; None if it may be text.
    """
    is_json, data = _is_json(data), data[:4096]
    for magic, certain, what in _MAGICS:
        if data.startswith(magic) and (certain or len(data.translate(None, _CONTROLS)) < len(data)):
            return what
    return _JSON if is_json else None


def _is_json(data: bytes) -> bool:
    """Whether text begins with a JSON object or an array of them, and not with a record whose first cell is one."""
    if not _OBJECT.match(data):
        return False
    line, end, _ = data.lstrip().partition(b"\n")
    if not end or line.strip() in (b"[", b"{", b"[{"):
        return True
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _is_no_text(data: bytes) -> bool:
    return (len(data) - len(data.translate(None, _CONTROLS))) * 50 > len(data)


def check_text(path: str, data: bytes, expected: str = "a CSV file") -> None:
    """Refuses a file that is no text.

    Args:
      path: the file.
      data: its first bytes.
      expected: what it should be.

    Raises:
      UsageError: more than one in fifty of these bytes are control codes that text does not have.
    """
    if _is_no_text(data):
        if (text := data.rstrip(b"\0")) and len(text) < len(data) and not _is_no_text(text):
            raise UsageError(
                f"{path}: is filled up with NUL bytes from byte {len(text):,} on; expected {expected}. Remove them: "
                f"tr -d '\\000' < {shlex.quote(path)} > text.csv"
            )
        raise UsageError(f"{path}: the first bytes are {data[:8]!r}, which is no text; expected {expected}")


MAX_RECORD_BYTES = 16 << 20
_FIRST_BYTES = 1 << 20  # where line ends are looked for
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@dataclasses.dataclass(frozen=True)
class CsvFile:
    """A CSV file and how to read it; holds no open file and can be pickled.

    Attributes:
        path: local, or gs://bucket/name.
        codec: utf-8, latin-1, utf-16-le or utf-16-be.
        num_columns: the number of fields of a record.
        columns: the positions of the raw columns in this file.
        header: the names in its first line; None if it has no header.
        data_start: where the first record may begin.
        lone_cr: its lines end with carriage returns.
        quoted_newlines: quoted fields may contain line ends.
        size, version, gzip: the file as it is stored.
        max_input_ratio: a gzip file that grows by more than this is refused.
        ignored: columns of a file for prediction that the schema does not declare.
    """

    path: str
    codec: str
    num_columns: int = 0
    columns: Layout = ()
    header: tuple[str, ...] | None = None
    data_start: int = 0
    lone_cr: bool = False
    quoted_newlines: bool = False
    size: int = 0
    version: str = ""
    gzip: bool = False
    max_input_ratio: float = MAX_INPUT_RATIO
    ignored: tuple[str, ...] = ()

    @property
    def mode(self) -> Literal["ranges", "stream"]:
        """Whether any part can be read by itself ("ranges"), or the file must be read from its beginning ("stream").

        In a stream, offsets are in decompressed bytes; for UTF-16, in bytes of the same text in UTF-8, byte-order mark
        included.
        """
        streamed = self.gzip or self.codec.startswith("utf-16") or self.lone_cr or self.quoted_newlines
        return "stream" if streamed else "ranges"

    @property
    def covers(self) -> int:
        """What all its ranges must cover together, computed without them: see `CsvRange.covers`."""
        if not self.columns:
            return 0
        return self.size if self.mode == "stream" else self.size - self.data_start

    @property
    def labels(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The features that are read from the file, each with its column names for messages."""
        return tuple((item.name, item.labels) for item in self.columns)

    @property
    def min_record_bytes(self) -> int:
        """The smallest size of a record: every column is followed by a delimiter or a line end."""
        return self.num_columns


@dataclasses.dataclass(frozen=True)
class CsvRange:
    """The records of a file that begin in [start, end); `end` None is the end of the file."""

    file: CsvFile
    start: int
    end: int | None

    @property
    def covers(self) -> int:
        """Its size in bytes; of a stream, which is compressed or of another encoding, the size of the file."""
        return self.file.size if self.end is None else self.end - self.start


def open_csv(
    path: str,
    schema: Schema,
    *,
    label: Literal["required", "optional", "if_present"] = "required",
    max_input_ratio: float = MAX_INPUT_RATIO,
) -> CsvFile:
    """Reads the beginning of a file to find out how to read the rest.

    Args:
        path: a local path or gs://bucket/name.
        schema: the schema of the file.
        label: "optional" is for prediction: the label and the weight may be absent, and are not read if present; nor
            are columns that the schema does not declare.
            "if_present" is for comparisons: label, weight and key are read where the file has them, and other columns
            are passed over.
        max_input_ratio: how many times its size a gzip file may decompress to; the first 64 MB are always allowed.

    Raises:
        UsageError: the header does not match the schema, or the number of columns is unknown.
        MillraceError: the file cannot be read.
    """
    beginning = read_beginning(path, schema.csv)
    file = dataclasses.replace(beginning.file, max_input_ratio=max_input_ratio)
    start, end, after = beginning.span
    if start == end:  # only empty lines
        return dataclasses.replace(file, num_columns=schema.csv.width or 0, data_start=after + beginning.bom)
    fields = beginning.fields(schema.csv)
    prediction = label == "optional"
    items = items_of(schema, prediction=prediction)
    header: tuple[str, ...] | None = fields
    try:
        described = None
        if label != "required":
            described = layout_by_names(path, fields, schema, prediction=prediction)
        if described is not None:
            columns, width = described
        elif is_header(path, fields, schema, items):
            columns, width = header_layout(path, fields, schema, items, allow_unread=prediction)
        else:
            without_label = prediction or (label == "if_present" and len(fields) + 1 == schema.csv.width)
            items = items_of(schema, prediction=without_label)
            columns, width = positional_layout(path, len(fields), schema, items, prediction=without_label)
            header, after = None, start
    except UsageError:
        check_text(path, beginning.first)
        raise
    ignored = ignored_columns(header, schema, columns) if prediction and header is not None else ()
    start = after + beginning.bom
    return dataclasses.replace(
        file, num_columns=width, columns=columns, header=header, data_start=start, ignored=ignored
    )


@dataclasses.dataclass(frozen=True)
class Beginning:
    """The beginning of a file.

    Attributes:
        file: how it is read; its columns are not known yet.
        bom: the length of a byte-order mark in UTF-8, which is not in `first`.
        first: the first bytes, decompressed; at least the first record.
        span: the start and end of the first record in `first`, and the start of the rest; see `_first_record`.
    """

    file: CsvFile
    bom: int
    first: bytes
    span: tuple[int, int, int]

    def fields(self, options: CsvOptions) -> tuple[str, ...]:
        """Returns the first record's fields, trimmed."""
        start, end, _ = self.span
        return _names(split_fields(self.first[start:end], options.delimiter, options.quote), self.file.codec)


def read_beginning(path: str, options: CsvOptions) -> Beginning:
    """Reads the first bytes of a file, at least its first record.

    Raises:
        UsageError: the file is no text, or the first line is too long.
        MillraceError: the file cannot be read.
    """
    stat = storage.stat(path)
    gzipped, codec, bom = signature(path, stat, options)
    first = first_bytes(path, stat, gzipped=gzipped, codec=codec, bom=bom, limit=_FIRST_BYTES)
    if not bom and (what := binary_kind(first)) is not None:
        raise UsageError(f"{path}: is {what}; expected a CSV file")
    quoted = options.quoted_newlines
    lone_cr = not quoted and b"\n" not in first and b"\r" in first
    line_end = b"\r" if lone_cr else b"\n"
    span = _first_record(first, options, line_end, complete=len(first) < _FIRST_BYTES)
    if span is None:
        first = first_bytes(path, stat, gzipped=gzipped, codec=codec, bom=bom, limit=MAX_RECORD_BYTES + 2)
        span = _first_record(first, options, line_end, complete=len(first) < MAX_RECORD_BYTES + 2)
    if span is None:
        raise UsageError(f"{path}: the first line is longer than {MAX_RECORD_BYTES} bytes; is this a CSV file?")
    file = CsvFile(path, codec, size=stat.size, version=stat.version, gzip=gzipped)
    file = dataclasses.replace(file, lone_cr=lone_cr, quoted_newlines=quoted)
    return Beginning(file, bom, first, span)


def split_ranges(file: CsvFile, *, range_bytes: int) -> list[CsvRange]:
    """Cuts a file at multiples of `range_bytes`: a single range for a stream, none for a file without records."""
    if not file.columns:
        return []
    if file.mode == "stream":
        return [CsvRange(file, file.data_start, None)]
    # At multiples of their size, so that of the blocks whose digests are taken few begin in one and end in another.
    size = max(1, range_bytes)
    inner = range((file.data_start // size + 1) * size, file.size, size)
    return [CsvRange(file, *ends) for ends in itertools.pairwise((file.data_start, *inner, file.size))]


def items_of(schema: Schema, *, prediction: bool) -> tuple[Feature | Label, ...]:
    """Returns the items of a schema that refer to columns, ignored ones included, since their names must be known."""
    items = tuple(item for item in schema.items if item.refs)
    return tuple(i for i in items if i is not schema.weight and i is not schema.label) if prediction else items


def signature(path: str, stat: storage.FileStat, options: CsvOptions) -> tuple[bool, str, int]:
    """Returns compression, codec and the UTF-8 length of the byte-order mark, which overrides the schema's encoding."""
    with storage.open_read(path, version=stat.version) as file:
        gzipped = file.read(2) == GZIP_MAGIC
    stream = open_stream(path, version=stat.version, size=stat.size, gzipped=gzipped, codec="utf-8", lone_cr=False)
    try:
        beginning = _read_up_to(stream, 3)
    finally:
        stream.close()
    for mark, codec in _BOMS:
        if beginning.startswith(mark):
            return gzipped, codec, len("\ufeff".encode())
    return gzipped, "utf-16-le" if options.encoding == "utf-16" else options.encoding, 0


def first_bytes(path: str, stat: storage.FileStat, *, gzipped: bool, codec: str, bom: int, limit: int) -> bytes:
    """Returns the first `limit` bytes of a file, decompressed and in UTF-8 or Latin-1, without the byte-order mark."""
    stream = open_stream(path, version=stat.version, size=stat.size, gzipped=gzipped, codec=codec, lone_cr=False)
    try:
        return _read_up_to(stream, limit + bom)[bom:]
    finally:
        stream.close()


def _read_up_to(stream: Reader, size: int) -> bytes:
    pieces, missing = [], size
    while missing and (data := stream.read(missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


def _first_record(data: bytes, options: CsvOptions, line_end: bytes, *, complete: bool) -> tuple[int, int, int] | None:
    """The start and end of the first record, and the start of the rest.

    Start and end are equal if there is no record. None if `data` ends inside the record: more bytes are needed.
    """
    start = len(data) - len(data.lstrip(b"\r\n"))
    if start == len(data):
        return (start, start, start) if complete else None
    if not options.quoted_newlines:  # a carriage return that begins a line is part of it
        start = data.rfind(line_end, 0, start) + 1
    if options.quoted_newlines:
        end = QuotedScanner(delimiter=options.delimiter, quote=options.quote).scan(data, start, START)[0]
    else:
        end = data.find(line_end, start)
    if end < 0:
        return (start, len(data), len(data)) if complete else None
    return start, start + len(data[start:end].rstrip(b"\r")), end + 1


def _names(fields: Sequence[bytes] | str, codec: str) -> tuple[str, ...]:
    """The first record's fields, trimmed; none if it cannot be split, so that it is rejected as data later."""
    if isinstance(fields, str):
        return ()
    encoding = "latin-1" if codec == "latin-1" else "utf-8"
    return tuple(field.decode(encoding, "replace").strip() for field in fields)


_SHOWN = 8


def cell_position(file: CsvFile, schema: Schema, name: str) -> int:
    """Returns a column's position, by its name in the file (a number where it has none), or by the schema's item.

    Raises:
        UsageError: the file has no such column, or the item is read from several.
    """
    names = column_names(file, schema)
    refs = next((item.refs for item in schema.items if item.name == name), ())
    if name not in names and len(refs) > 1:
        raise UsageError(f"{file.path}: {name!r} is read from {len(refs)} columns; name one column of the file")
    for ref in (name, *refs):
        if isinstance(ref, int) and file.header is not None and ref < file.num_columns:
            return ref
        label = file_name(ref, schema) or str(ref)
        if label in names:
            return names.index(label)
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    raise UsageError(f"{file.path}: has no column {name!r}; it has {shown or 'none'}")


def column_names(file: CsvFile, schema: Schema) -> tuple[str, ...]:
    """Returns the names of a file's columns in order: of its header, or of the schema; else their numbers."""
    if file.header is not None:
        return file.header
    width = schema.csv.width or file.num_columns
    names = schema.csv.columns or tuple(map(str, range(width)))
    if file.num_columns == len(names) - 1:  # a file for prediction without the column of the label
        (label,) = schema.label.refs
        lacking = names.index(label) if isinstance(label, str) else label
        return (*names[:lacking], *names[lacking + 1 :])
    return tuple(names)
