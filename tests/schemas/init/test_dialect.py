"""How files are written: delimiters, quotes, headers, encodings; and files that are no CSV."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from schemas.errors import MillraceError, UsageError
from schemas.init.survey import detect

ROWS = [f"{i},{i / 7:.3f},{'xyz'[i % 3]},Ann Other" for i in range(60)]


def put(folder: Path, data: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_delimiters_with_and_without_a_header(tmp_path, delimiter, header):
    lines = (["id,share,grade,name"] if header else []) + ROWS
    found = detect(put(tmp_path, "\n".join(lines).replace(",", delimiter) + "\n"))
    assert found.options.delimiter == delimiter
    assert found.width == 4
    assert found.names == (("id", "share", "grade", "name") if header else None)
    assert found.options.header == ("present" if header else "none")


def test_numbers_in_their_order_are_a_header(tmp_path):
    assert detect(put(tmp_path, "0,1,2\n" + "5,6,7\n" * 30)).names == ("0", "1", "2")
    assert detect(put(tmp_path, "1,1,2\n" + "5,6,7\n" * 30)).names is None


def test_an_index_of_pandas_has_no_name(tmp_path):
    assert detect(put(tmp_path, ",a,b\n" + "".join(f"{i},{i / 3},x\n" for i in range(30)))).names == ("", "a", "b")


def test_quotes_that_hold_line_ends_and_delimiters(tmp_path):
    found = detect(put(tmp_path, "id,text\n" + '1,"two\nlines, and ""more"""\n' * 30))
    assert (found.options.quoted_newlines, found.width) == (True, 2)
    assert not detect(put(tmp_path, "id,text\n" + '1,"one line, only"\n' * 30)).options.quoted_newlines
    assert detect(put(tmp_path, "id,text\n" + "1,'one line, only'\n" * 30)).options.quote == "'"


@pytest.mark.parametrize(
    ("codec", "encoding"), [("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("latin-1", "latin-1"), ("utf-16", "utf-16")]
)
def test_encodings(tmp_path, codec, encoding):
    text = "name,share\n" + "".join(f"Zoë,{i}.5\n" for i in range(50))
    for name, data in (("t.csv", text.encode(codec)), ("t.csv.gz", gzip.compress(text.encode(codec)))):
        found = detect(put(tmp_path, data, name))
        assert found.options.encoding == encoding
        assert found.names == ("name", "share")
        assert bool(found.notes) == (encoding == "latin-1")


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("t.csv", "a,b\n1,2\n")
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\n \r\n\n", "the file is empty"),
        (zipped(), "zip archive"),
        (b"PAR1" + bytes(100), "Parquet"),
        (bytes(range(256)) * 100, "which is no text"),
        (b"a,b\n" + bytes(1000), "which is no text"),
        (b"a\n1\n2\n3\n", "found one column ('a' is its first line)"),
        (b"a,b,c\n", "found a header and no records"),
        (b"a,b,a\n" + b"1,2,3\n" * 30, "the header names 'a' more than once"),
        (b"a,b\n" + b"1,2,3\n" * 30, "the header has 2 names, but most records have 3 fields"),
    ],
)
def test_what_is_no_table_is_said_in_one_line(tmp_path, data, message):
    with pytest.raises(UsageError) as error:
        detect(put(tmp_path, data))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_gzip_file(tmp_path):
    with pytest.raises(MillraceError, match="truncated"):
        detect(put(tmp_path, gzip.compress(b"a,b\n1,2\n" * 10_000)[:40]))
