"""The records of a text according to Python's csv module, to check the reader against."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import functools
import gzip
import io
import math
import re
import struct
import sys
from typing import Any, Literal

from schemas.spec.table import Schema
from tests.support.csv_reading import schema_of

FEATURES = ({"name": "t", "kind": "text", "column": 0}, {"name": "n", "kind": "numeric", "column": 1})
LABEL = {"name": "l", "kind": "category", "column": 2}
DECIMAL = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WHITE = b" \t\n\v\f\r"
Row = tuple[bytes, float, bytes]
csv.field_size_limit(1 << 30)  # the reader has no limit either
Encoding = Literal["utf-8", "marked utf-8", "latin-1", "utf-16", "marked utf-16-le", "marked utf-16-be"]


@dataclasses.dataclass(frozen=True)
class Written:
    """How a text's bytes are written to a file. ASCII text means the same in every encoding."""

    delimiter: str = ","
    quote: str = '"'
    encoding: Encoding = "utf-8"
    members: int = 0  # of gzip; 0: plain

    def schema(self, *, quoted_newlines: bool) -> Schema:
        """Three columns: a text, a number and a label."""
        options: dict[str, Any] = {"delimiter": self.delimiter, "quote": self.quote, "quoted_newlines": quoted_newlines}
        if not self.encoding.startswith("marked"):  # a byte order mark shows it
            options["encoding"] = self.encoding
        return schema_of(FEATURES, label=LABEL, header="none", num_columns=3, **options)

    def text(self, data: bytes) -> bytes:
        """The text as the reader counts its offsets: bytes of UTF-8 or Latin-1, after any byte order mark."""
        data = data.translate(bytes.maketrans(b',"', (self.delimiter + self.quote).encode()))
        if sys.version_info < (3, 11):
            data = data.replace(b"\x00", b"")  # the csv module rejects it
        if "16" in self.encoding:
            both = data.decode("utf-8", "surrogateescape").encode("utf-16-le", "surrogatepass")
            return both.decode("utf-16-le", "surrogatepass").encode("utf-8", "surrogatepass")
        return data

    def file(self, text: bytes) -> bytes:
        """The file's bytes."""
        codec = self.encoding.removeprefix("marked ")
        data = text
        if codec.startswith("utf-16"):
            data = text.decode("utf-8", "surrogatepass").encode(
                "utf-16-le" if codec == "utf-16" else codec, "surrogatepass"
            )
        marks = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
        data = marks[codec] + data if self.encoding.startswith("marked") else data
        if not self.members:
            return data
        step = max(1, -(-len(data) // self.members))
        return (
            b"".join(gzip.compress(data[i : i + step], 1) for i in range(0, max(1, len(data)), step))
            if self.members
            else data
        )

    @property
    def first(self) -> int:
        """The offset of the text's first byte."""
        return 3 if self.encoding.startswith("marked") else 0

    def reader(self, lines: Any) -> Any:
        """Python's own reader of this dialect."""
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote)

    def fields(self, row: list[str]) -> list[bytes]:
        """The bytes of fields that were read as one character per byte."""
        return [f.encode("utf-8" if self.encoding == "latin-1" else "latin-1") for f in row]


def parsed(fields: list[bytes]) -> Row | None:
    """The values of three fields; None if the row must be rejected."""
    if len(fields) != 3:
        return None
    text, number, label = fields[0], fields[1].strip(WHITE), fields[2].strip(WHITE)
    try:
        text.decode()
        label.decode()
        value = struct.unpack("<f", struct.pack("<f", float(number)))[0] if DECIMAL.fullmatch(number) else None
    except (UnicodeDecodeError, OverflowError):
        return None
    is_word = label and not set(b"\r\n") & set(label)  # allowed in the label's vocabulary
    return (text, value, label) if is_word and value is not None and not math.isinf(value) else None


@functools.lru_cache(maxsize=1 << 16)
def _row(row: tuple[str, ...], written: Written) -> Row | None:
    return parsed(written.fields(list(row)))


def csv_rows(text: str, written: Written) -> list[list[str]]:
    """The rows of a complete text; it holds one character per byte."""
    return list(written.reader(io.StringIO(text, newline="")))


@functools.lru_cache(maxsize=1 << 16)
def line_alone(line: bytes, written: Written) -> Row | None:
    """One line that is not empty, without its line end; quotes must come in pairs."""
    # Stricter than csv in one case: an unclosed quote, which csv closes at the end.
    closed = line.replace(b"\r", b" ").decode("latin-1") + f"\n\n{3 * written.delimiter}\n"
    unterminated = len(csv_rows(closed, written)) == 1
    try:
        rows = list(written.reader([line.decode("latin-1")]))
    except csv.Error:
        rows = []
    stray = line.count(written.quote.encode()) % 2 == 1
    return parsed(written.fields(rows[0])) if len(rows) == 1 and not unterminated and not stray else None


def line_by_line(text: bytes, written: Written) -> list[tuple[int, Row | None]]:
    """(offset, row or None) for each line that is not empty; each line is read alone."""
    found = []
    offset = 0
    for line in text.split(b"\n"):
        if content := line.rstrip(b"\r"):
            found.append((offset, line_alone(content, written)))
        offset += len(line) + 1
    return found


def whole_text(text: bytes, written: Written) -> list[Row | None]:
    """Each record of the text that is not empty; an unclosed quote makes the last one invalid."""
    characters = text.decode("latin-1")
    rows = csv_rows(characters, written)
    more = csv_rows(characters + "\n\n" + 3 * written.delimiter + "\n", written)
    expected = [_row(tuple(row), written) for row in rows if row]
    return [*expected[:-1], None] if len(more) == len(rows) and expected else expected
