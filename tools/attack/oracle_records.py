"""What the records of a CSV file are, and their fields: by docs/schema.md, and by Python's csv module for each one."""

from __future__ import annotations

import csv
import dataclasses
import gzip
from collections.abc import Iterator

MAX_RECORD = 16 << 20
HEAD = 4096  # what a reject keeps of a longer record
MAC = 1 << 20  # how far a line feed is looked for
csv.field_size_limit(1 << 30)

QUOTE_FAULTS = frozenset({"unterminated_quote", "stray_quote"})
RETURN_FAULTS = frozenset({"stray_carriage_return"})


@dataclasses.dataclass(frozen=True)
class Record:
    """A record's bytes without its line end, and where they begin: in the file, or as docs/rejects.md counts."""

    offset: int
    raw: bytes


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written. `quoted_newlines`: a quoted field may hold line ends."""

    delimiter: str = ","
    quote: str = '"'
    quoted_newlines: bool = False
    encoding: str = "utf-8"


def readable(data: bytes, encoding: str) -> tuple[bytes, int, bool]:
    """A file's bytes as they are counted, the length of the byte-order mark, and whether they are Latin-1."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data.startswith(b"\xef\xbb\xbf"):
        return data, 3, False
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data.decode(codec).encode(), 3, False
    if encoding == "utf-16":
        return data.decode("utf-16-le").encode(), 0, False
    return data, 0, encoding == "latin-1"


def records(data: bytes, mark: int, dialect: Dialect) -> Iterator[Record]:
    """All records of a file, empty lines passed over; `data` and `mark` are from `readable`."""
    if dialect.quoted_newlines:
        yield from _quoted(data, mark, dialect)
        return
    first = data[mark : mark + MAC]
    if b"\n" not in first and b"\r" in first:
        data = data.replace(b"\r", b"\n")
    position = mark
    for line in data[mark:].split(b"\n"):
        raw = line.rstrip(b"\r")
        if raw:
            yield Record(position, raw)
        position += len(line) + 1


def _quoted(data: bytes, position: int, dialect: Dialect) -> Iterator[Record]:
    """Records whose quoted fields may hold line ends."""
    delimiter, quote = dialect.delimiter.encode(), dialect.quote.encode()
    signs = delimiter + quote + b"\r\n"
    start, in_quotes, at_start = position, False, True
    size = len(data)
    while position < size:
        sign = data[position : position + 1]
        if in_quotes:
            close = data.find(quote, position)
            if close < 0:
                break
            if data[close + 1 : close + 2] == quote:
                position = close + 2
            else:
                position, in_quotes = close + 1, False
            continue
        if sign == quote and at_start:
            in_quotes, at_start, position = True, False, position + 1
        elif sign in (b"\r", b"\n"):
            if position > start:
                yield Record(start, data[start:position])
            position += 1
            start, at_start = position, True
        else:
            at_start = sign == delimiter
            position += 1
            if not at_start:
                while position < size and data[position] not in signs:
                    position += 1
    if start < size:
        yield Record(start, data[start:])


def fields(raw: bytes, dialect: Dialect) -> tuple[list[bytes], frozenset[str]]:
    """A record's fields, and the reasons for which it may be rejected before its fields are counted; [] with those."""
    delimiter, quote = dialect.delimiter.encode(), dialect.quote.encode()
    if quote not in raw:
        if b"\r" in raw:
            return [], RETURN_FAULTS
        return raw.split(delimiter), frozenset()
    doubtful = _quote_faults(raw, delimiter, quote, lines=not dialect.quoted_newlines)
    if doubtful:
        return [], doubtful
    (row,) = csv.reader([raw.decode("latin-1")], delimiter=dialect.delimiter, quotechar=dialect.quote)
    return [field.encode("latin-1") for field in row], frozenset()


def _quote_faults(raw: bytes, delimiter: bytes, quote: bytes, *, lines: bool) -> frozenset[str]:
    """For what a record may be rejected whose quotes do not pair; nothing where they do."""
    faults: set[str] = set()
    position, size = 0, len(raw)
    while position <= size:
        behind_quote = raw[position : position + 1] == quote
        if behind_quote:
            position += 1
            while True:
                close = raw.find(quote, position)
                if close < 0:
                    return frozenset(faults | QUOTE_FAULTS)
                position = close + 1
                if raw[position : position + 1] != quote:
                    break
                position += 1
        end = raw.find(delimiter, position)
        rest = raw[position : size if end < 0 else end]
        if b"\r" in rest:
            faults |= RETURN_FAULTS
        if behind_quote and rest.strip():
            faults.add("stray_quote")
        if end < 0:
            break
        position = end + 1
    if lines and raw.count(quote) % 2:
        faults |= QUOTE_FAULTS
    return frozenset(faults)
