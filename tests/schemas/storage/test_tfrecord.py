"""TFRecord files as TensorFlow writes them, cut into records in chunks of any size."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import tensorflow as tf

from schemas.storage.tfrecord import BrokenFileError, BrokenGzipError, Frames, gunzip, read_frames

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


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_all_members_of_a_gzip_file_are_read(frames: bytes, size: int) -> None:
    packed = gzip.compress(frames[:500]) + gzip.compress(frames[500:])
    assert b"".join(gunzip(chunks(packed, size))) == frames


def test_a_changed_gzip_stream_yields_the_records_before_the_change() -> None:
    plain = random.Random(1).randbytes(50_000) * 3
    packed = bytearray(gzip.compress(plain, 1))
    packed[len(packed) // 2] ^= 0xFF
    given: list[bytes] = []
    with pytest.raises(BrokenGzipError):
        given.extend(gunzip([bytes(packed)]))
    assert b"".join(given)[:1000] == plain[:1000]


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"no gzip at all"])
def test_what_is_no_gzip_stream_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenGzipError):
        list(gunzip([data]))
