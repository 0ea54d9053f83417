"""Files that are no CSV are named for what they are; text that happens to begin with the same letters is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from schemas.csv.file import binary_kind, open_csv
from schemas.errors import UsageError
from schemas.spec.loader import parse_schema
from schemas.spec.table import Schema

SCHEMA = parse_schema(
    b"name: t\nformat: csv\ncsv: {header: present}\nfeatures: [{name: a, kind: numeric}]\n"
    b"label: {name: b, kind: category, values: [x, y]}\nsplit: {by: row, train: 0.8, eval: 0.2, test: 0}\n",
    "t.yaml",
)
BINARY = {
    b"\x89PNG\r\n\x1a\n" + bytes(20): "a PNG image",
    b"\xff\xd8\xff\xe0" + bytes(20): "a JPEG image",
    b"GIF89a" + bytes(20): "a GIF image",
    b"\x7fELF\x02\x01\x01" + bytes(20): "a program",
    b"PK\x03\x04\x14" + bytes(20): "a zip archive",
    b"PAR1\x15\x04" + bytes(20): "a Parquet file",
    b"SQLite format 3\x00" + bytes(20): "an SQLite database",
    b"BZh91AY&SY\x00\x01": "compressed by bzip2",
}


@pytest.mark.parametrize(("data", "what"), BINARY.items())
def test_a_file_that_is_no_text_is_refused_by_what_it_is(tmp_path: Path, data: bytes, what: str) -> None:
    for name, stored in (("new.csv", data), ("new.csv.gz", gzip.compress(data))):
        path = tmp_path / name
        path.write_bytes(stored)
        assert isinstance(SCHEMA, Schema)
        with pytest.raises(UsageError) as error:
            open_csv(str(path), SCHEMA)
        assert str(error.value).startswith(f"{path}: is {what}")
        assert str(error.value).endswith("; expected a CSV file")
        assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["ORC", "PAR1", "GIF87a", "BZh9", "%PDF-1", "PK", "SQLite format 3", "ARROW1"])
def test_letters_alone_make_no_file_binary(name: str) -> None:
    assert binary_kind(f"{name},late\n1,yes\n".encode()) is None
    assert binary_kind(name.encode()) is None


def test_a_stray_control_code_makes_no_file_binary() -> None:
    assert binary_kind(b"a,b\n\x00,1\n") is None
