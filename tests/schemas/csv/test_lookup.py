"""Records found again by their offsets, whatever they are written as."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest import mock

import pytest

from schemas.csv import reader
from schemas.csv.file import open_csv
from schemas.csv.rows import read_records
from schemas.csv.stream import open_stream
from schemas.errors import MillraceError
from tests.support.csv_reading import schema_of

LINES = [b"%d,two,%d" % (i, i * i) for i in range(500)]
DATA = b"a,b,c\n" + b"\r\n".join(LINES) + b"\n"
OFFSETS = [DATA.index(line) for line in (LINES[400], LINES[3], LINES[499])]


@pytest.mark.parametrize("zipped", [False, True])
def test_records_are_looked_up_unchanged(tmp_path: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(DATA) if zipped else DATA)
    file = open_csv(str(path), schema_of())
    counted = mock.Mock(side_effect=open_stream)
    monkeypatch.setattr(reader, "open_stream", counted)
    found = read_records(file, schema_of(), OFFSETS, block_bytes=64)
    assert found == dict(zip(OFFSETS, (LINES[400], LINES[3], LINES[499]), strict=True))
    assert counted.call_count == zipped  # a stream is read once, however many are wanted
    assert read_records(file, schema_of(), []) == {}


@pytest.mark.parametrize("zipped", [False, True])
def test_a_record_that_was_removed_is_an_error(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(DATA) if zipped else DATA)
    file = open_csv(str(path), schema_of())
    with pytest.raises(MillraceError, match=f"no record begins at byte {OFFSETS[0] + 1}; the file was changed"):
        read_records(file, schema_of(), [OFFSETS[0] + 1, OFFSETS[1]])
