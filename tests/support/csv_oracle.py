"""The records of a text by the oracle of `make attack`, which reads them by Python's csv module, and their values."""

from __future__ import annotations

import codecs
import dataclasses
import functools
import gzip
import math
import re
import struct
import sys
from typing import Any, Literal

from schemas.spec.table import Schema
from tests.support.csv_reading import schema_of
from tools.attack.oracle_records import Dialect, fields, records

FEATURES = ({"name": "t", "kind": "text", "column": 0}, {"name": "n", "kind": "numeric", "column": 1})
LABEL = {"name": "l", "kind": "category", "column": 2}
DECIMAL = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WHITE = b" \t\n\v\f\r"
Row = tuple[bytes, float, bytes]
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
        return b"".join(gzip.compress(data[i : i + step], 1) for i in range(0, max(1, len(data)), step))

    @property
    def first(self) -> int:
        """The offset of the text's first byte."""
        return 3 if self.encoding.startswith("marked") else 0


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
def _row(raw: bytes, dialect: Dialect) -> Row | None:
    cells, faults = fields(raw, dialect)
    if dialect.encoding == "latin-1":
        cells = [cell.decode("latin-1").encode() for cell in cells]
    return None if faults else parsed(cells)


def expected_rows(text: bytes, written: Written, *, quoted_newlines: bool) -> list[tuple[int, Row | None]]:
    """(offset, row or None) for each record that is not empty."""
    dialect = Dialect(written.delimiter, written.quote, quoted_newlines, written.encoding)
    return [(record.offset, _row(record.raw, dialect)) for record in records(text, 0, dialect)]
