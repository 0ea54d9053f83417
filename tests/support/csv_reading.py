"""Schemas as text, and CSV files: what is read of every range, and what the oracle expects."""

from __future__ import annotations

import codecs
import dataclasses
import functools
import gzip
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import schemas
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.rejects import Reject
from schemas.spec.loader import parse_schema
from schemas.spec.table import OFFSET, Schema
from tests.support.csv_oracle import DECIMAL, WHITE, Dialect, fields, records

FEATURE = "- {name: x, kind: numeric}"


def text(*features: str, label: str = "{name: y, kind: category}", more: str = "") -> str:
    """A schema file: features from line 4 on, then the label, then `more`."""
    lines = [
        "name: d",
        "format: csv",
        "features:",
        *(f"  {f}" for f in features or (FEATURE,)),
        f"label: {label}",
        more,
    ]
    return "\n".join(lines)


FOLDER = Path(schemas.__file__).parent


def csv_schema(name: str) -> Schema:
    """The schema of a CSV dataset that ships, by its name."""
    return table_schema((FOLDER / f"{name}.yaml").read_text())


def table_schema(content: str) -> Schema:
    """The schema of rows that a text declares."""
    schema = parse_schema(content.encode(), "schema.yaml")
    assert isinstance(schema, Schema)
    return schema


TEXTS = ("a", "b", "c")


def schema_of(
    features: Sequence[Mapping[str, object]] | None = None,
    *,
    label: Mapping[str, object] | None = None,
    split: Mapping[str, object] | None = None,
    **csv: object,
) -> Schema:
    """A schema; by default, three text columns a, b, c, where c is the label and no value means missing."""
    values: dict[str, Any] = {
        "name": "some",
        "format": "csv",
        "csv": {"missing": (), **csv},
        "features": tuple(features)
        if features is not None
        else ({"name": "a", "kind": "text"}, {"name": "b", "kind": "text"}),
        "label": label or {"name": "c", "kind": "category"},
    }
    if split is not None:
        values["split"] = split
    return Schema.model_validate_json(json.dumps(values))


@dataclasses.dataclass(frozen=True)
class Reading:
    """The result of reading one file. A row has its values by column name; a vector of one value is that value."""

    rows: list[dict[str, Any]]
    rejects: list[Reject]
    read: int

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    @property
    def reasons(self) -> list[tuple[int, str, str | None]]:
        """(offset, reason, column) of each reject."""
        return [(r.offset, r.reason, r.column) for r in self.rejects]


def read_all(
    path: Path,
    schema: Schema,
    *,
    range_bytes: int = 1 << 20,
    label: Literal["required", "optional"] = "required",
    **options: Any,
) -> Reading:
    """Reads every range of a file, in order."""
    file = open_csv(str(path), schema, label=label)
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    read = 0
    for part in split_ranges(file, range_bytes=range_bytes):
        for decoded in read_range(part, schema, **options):
            assert decoded.read == decoded.batch.num_rows + len(decoded.rejects)
            rows.extend({name: _plain(value) for name, value in row.items()} for row in decoded.batch.to_pylist())
            rejects.extend(decoded.rejects)
            read += decoded.read
    assert [row[OFFSET] for row in rows] == sorted({row[OFFSET] for row in rows})
    return Reading(rows, rejects, read)


def read_bytes(folder: Path, data: bytes, schema: Schema, **options: Any) -> Reading:
    """Writes `data` to a file in `folder`, and reads it."""
    path = folder / "data.csv"
    path.write_bytes(data)
    return read_all(path, schema, **options)


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


FEATURES = ({"name": "t", "kind": "text", "column": 0}, {"name": "n", "kind": "numeric", "column": 1})
LABEL = {"name": "l", "kind": "category", "column": 2}
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
