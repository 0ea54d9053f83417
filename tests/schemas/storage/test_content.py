"""Digests of files' contents: the same however a file is cut into ranges, and another for any other content."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.errors import MillraceError
from schemas.storage import content
from tests.support.csv_reading import schema_of

BLOCK = 64


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "BLOCK_BYTES", BLOCK)
        yield


def expected(data: bytes) -> str:
    """By the definition, without the package."""
    blocks = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
    return hashlib.sha256(b"".join(hashlib.sha256(block).digest() for block in blocks)).hexdigest()


def in_ranges(path: Path, range_bytes: int, **options: Any) -> str | None:
    """The digest that the workers' reads of a file make together."""
    schema = schema_of(**options)
    blocks: dict[int, str] = {}
    for part in split_ranges(open_csv(str(path), schema), range_bytes=range_bytes):
        for _ in read_range(part, schema, batch_bytes=100, digests=blocks.update):
            pass
    return content.content_digest(path.stat().st_size, blocks)


TEXT = "a,b,c\n" + "".join(f"{i},some text {i},c{i % 3}\n" for i in range(60))


@pytest.mark.parametrize("range_bytes", [1, 7, 63, 64, 65, 200, 1 << 20])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        pytest.param(TEXT.encode(), {}, id="plain"),
        pytest.param(b"\n\n" + TEXT.encode().rstrip(b"\n"), {}, id="no last line end"),
        pytest.param(TEXT.encode() + b"\n" * 300, {}, id="empty lines at the end"),
        pytest.param(TEXT.encode(), {"quoted_newlines": True}, id="quoted newlines"),
        pytest.param(gzip.compress(TEXT.encode()), {}, id="gzip"),
        pytest.param(TEXT.encode("utf-16"), {"encoding": "utf-16"}, id="utf-16"),
        pytest.param(b"\xef\xbb\xbf" + TEXT.encode(), {}, id="byte-order mark"),
        pytest.param(b"a,b,c\n" + b"1," + b"x" * 1000 + b",c\n2,y,c\n", {}, id="a record of many blocks"),
    ],
)
def test_the_digest_does_not_depend_on_how_a_file_is_cut(tmp_path, data, options, range_bytes):
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    assert in_ranges(path, range_bytes, **options) == expected(data)
    assert content.digest_file(str(path), size=len(data)) == expected(data)


@given(
    data=st.binary(max_size=400),
    cuts=st.lists(st.integers(1, 399), unique=True),
    reads=st.integers(1, 100),
)
def test_blocks_are_digested_once_by_whoever_reads_where_they_begin(data, cuts, reads):
    ends = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    found: dict[int, str] = {}
    for start, end in itertools.pairwise(ends):
        begin = max(0, start - 1)
        reader = content.DigestedBlocks(io.BytesIO(data[begin:]), position=begin, start=start, end=end)
        while reader.consumed + begin < end and reader.read(reads):
            pass
        blocks = reader.digests()
        assert not found.keys() & blocks.keys()
        found |= blocks
    assert content.content_digest(len(data), found) == expected(data)


def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"x" * 1000)
    with pytest.raises(MillraceError, match=r"data\.csv: changed while it was read"):
        content.digest_file(str(tmp_path / "data.csv"), size=2000)
    assert content.content_digest(1000, {0: "00"}) is None
