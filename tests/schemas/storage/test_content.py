"""The bytes of files: digests of blocks, frames of TFRecord files."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.errors import MillraceError
from schemas.storage import content
from schemas.storage.tfrecord import BrokenFileError, BrokenGzipError, Frames, gunzip, read_frames
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
        for decoded in read_range(part, schema, batch_bytes=100, digests=True):
            blocks.update(decoded.digests)
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
    digests: dict[int, str] = {}
    for start, end in itertools.pairwise(ends):
        begin = max(0, start - 1)
        reader = content.DigestedBlocks(io.BytesIO(data[begin:]), position=begin, start=start, end=end)
        while reader.consumed + begin < end and reader.read(reads):
            pass
        blocks = reader.digests()
        assert not digests.keys() & blocks.keys()
        digests |= blocks
    assert content.content_digest(len(data), digests) == expected(data)


def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"x" * 1000)
    with pytest.raises(MillraceError, match=r"data\.csv: changed while it was read"):
        content.digest_file(str(tmp_path / "data.csv"), size=2000)
    assert content.content_digest(1000, {0: "00"}) is None


RECORDS = [b"", b"a", b"b" * 300, b"c" * 5000, b"", b"d" * 17]


@pytest.fixture
def frames(tmp_path: Path) -> bytes:
    """What TensorFlow writes."""
    with tf.io.TFRecordWriter(str(tmp_path / "x")) as writer:
        for record in RECORDS:
            writer.write(record)
    return (tmp_path / "x").read_bytes()


def chunks(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def read_until_broken(parts: list[bytes]) -> tuple[list[Frames], BrokenFileError]:
    read: list[Frames] = []
    with pytest.raises(BrokenFileError) as caught:
        read.extend(read_frames(parts))
    return read, caught.value


@pytest.mark.parametrize("size", [1, 7, 16, 100, 10_000])
def test_the_records_are_those_that_were_written_whatever_the_chunks(frames: bytes, size: int) -> None:
    batches = list(read_frames(chunks(frames, size)))
    assert [record for batch in batches for record in batch.records] == RECORDS
    starts = [start for batch in batches for start in batch.offsets[:-1]]
    assert starts == [16 * i + sum(map(len, RECORDS[:i])) for i in range(len(RECORDS))]
    assert [batch.first + i for batch in batches for i in range(len(batch.records))] == list(range(len(RECORDS)))
    assert batches[-1].offsets[-1] == len(frames)
    assert not any(batch.damaged for batch in batches)


def test_each_flipped_bit_is_found_in_its_record_or_its_length(frames: bytes) -> None:
    ends = [16 * (i + 1) + sum(map(len, RECORDS[: i + 1])) for i in range(len(RECORDS))]
    for place in [*range(400), *range(5_300, len(frames))]:
        flipped = bytearray(frames)
        flipped[place] ^= 1 << place % 8
        record = next(i for i, end in enumerate(ends) if place < end)
        start = ends[record] - 16 - len(RECORDS[record])
        if place < start + 12:
            _, broken = read_until_broken([bytes(flipped)])
            assert (broken.record, broken.offset) == (record, start)
        else:
            assert [batch.damaged for batch in read_frames([bytes(flipped)])] == [(record,)]


@pytest.mark.parametrize("left", [1, 11, 12, 15, 16, 40, 333, 5_380])
def test_a_file_that_ends_inside_a_record_is_read_up_to_it(frames: bytes, left: int) -> None:
    ends = [0] + [16 * (i + 1) + sum(map(len, RECORDS[: i + 1])) for i in range(len(RECORDS))]
    if left in ends:
        assert sum(len(batch.records) for batch in read_frames(chunks(frames[:left], 9))) == ends.index(left)
        return
    read, broken = read_until_broken(chunks(frames[:left], 9))
    assert sum(len(batch.records) for batch in read) == broken.record
    assert broken.offset == ends[broken.record]
    assert "the file ends inside it" in broken.reason


def test_a_changed_gzip_stream_yields_the_records_before_the_change() -> None:
    plain = random.Random(1).randbytes(50_000) * 3
    packed = bytearray(gzip.compress(plain, 1))
    packed[len(packed) // 2] ^= 0xFF
    chunks: list[bytes] = []
    with pytest.raises(BrokenGzipError):
        chunks.extend(gunzip([bytes(packed)]))
    assert b"".join(chunks)[:1000] == plain[:1000]


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"no gzip at all"])
def test_what_is_no_gzip_stream_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenGzipError):
        list(gunzip([data]))
