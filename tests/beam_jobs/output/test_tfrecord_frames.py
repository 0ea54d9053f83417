"""Frames, read back by TensorFlow, which compares every checksum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.records.examples import framed, joined, lengths, record, sealed
from schemas.storage.tfrecord import FOOTER, HEADER

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)


def read_back(frames: pa.LargeBinaryArray, folder: Path) -> list[bytes]:
    path = folder / "frames"
    path.write_bytes(joined(frames))
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


@in_one_folder
@given(records=st.lists(st.binary(max_size=40), max_size=20))
def test_records_of_any_lengths_are_read_back(records, tmp_path):
    frames = framed(records)
    assert read_back(frames, tmp_path) == records
    assert [record(frames, i) for i in range(len(frames))] == records
    assert lengths(frames).tolist() == [HEADER + len(r) + FOOTER for r in records]


@in_one_folder
@given(records=st.integers(0, 40).flatmap(lambda n: st.lists(st.binary(min_size=n + 1, max_size=n + 1), min_size=1)))
def test_records_of_one_length_are_framed_alike(records):
    room = b"?" * HEADER, b"?" * FOOTER
    frames = np.array([list(room[0] + r + room[1]) for r in records], np.uint8)
    assert sealed(frames).equals(framed(records))


def test_more_records_than_are_summed_at_once_are_all_sealed(tmp_path):
    records = [b"%05d" % i for i in range(1000)]
    frames = np.zeros((1000, HEADER + 5 + FOOTER), np.uint8)
    frames[:, HEADER:-FOOTER] = np.frombuffer(b"".join(records), np.uint8).reshape(1000, 5)
    assert read_back(sealed(frames), tmp_path) == records


def test_a_slice_is_joined_and_measured_by_itself(tmp_path):
    records = [b"a", b"", b"ccc", b"dd"]
    part = framed(records)[1:3]
    assert read_back(part, tmp_path) == records[1:3]
    assert lengths(part).tolist() == [HEADER + FOOTER, HEADER + 3 + FOOTER]
