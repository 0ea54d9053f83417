"""Fragments and the shards merged from them, read back by TensorFlow."""

from __future__ import annotations

import collections
import contextlib
import resource
from collections.abc import Iterator

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf

from beam_jobs.core.shuffle_plan import ShufflePlan
from beam_jobs.records import examples
from beam_jobs.records.encode import Encoded
from beam_jobs.records.fragments import FragmentTable, merge_buckets, write_fragment, write_shard
from schemas.errors import MillraceError


def batch(file: int, rows: int) -> Encoded:
    splits = np.array([0, 0, 0, 1] * (rows // 4 + 1), np.int8)[:rows]
    records = [f"{file}-{i}".encode() * (1 + i % 3) for i in range(rows)]
    return Encoded(examples.framed(records), splits, file, 100 * file)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_record_comes_out_once_and_in_its_split(tmp_path, compression):
    plan = ShufflePlan((5, 2, 0), seed=1)
    batches = [batch(file, rows) for file, rows in enumerate([1000, 1, 0, 333])]
    fragments = [write_fragment(b, plan, str(tmp_path)) for b in batches]
    table = FragmentTable.of(fragments)
    for split, buckets in ((0, range(5)), (1, range(5, 7))):
        shard = write_shard(
            str(tmp_path / f"shard{split}"),
            merge_buckets(table, buckets, seed=1),
            split="train",
            index=0,
            rows=table.bucket_rows(buckets),
            compression=compression,
        )
        kind = {"none": "", "gzip": "GZIP"}[compression]
        read = [r.numpy() for r in tf.data.TFRecordDataset(shard.path, kind)]
        expected = [examples.record(b.frames, i) for b in batches for i in np.flatnonzero(b.splits == split).tolist()]
        assert collections.Counter(read) == collections.Counter(expected)
        assert len(read) == shard.rows
        data = (tmp_path / f"shard{split}").read_bytes()
        assert (len(data), f"{google_crc32c.value(data):08x}") == (shard.bytes, shard.crc32c)


def test_the_order_in_which_batches_were_written_does_not_matter(tmp_path):
    plan = ShufflePlan((2, 1, 0), seed=1)
    fragments = [write_fragment(batch(file, 100), plan, str(tmp_path)) for file in range(4)]
    shards = [
        b"".join(merge_buckets(FragmentTable.of(order), range(3), seed=1)) for order in (fragments, fragments[::-1])
    ]
    assert shards[0] == shards[1]


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What is beyond cannot be written, as on a full disk: the system writes a part, and refuses the next write."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_shard_that_the_disk_has_no_room_for_is_no_shorter_shard(tmp_path):
    path = str(tmp_path / "shard")
    with files_of_at_most(2500), pytest.raises(MillraceError, match=f"{path}: File too large"):
        write_shard(path, iter([bytes(1000)] * 4), split="train", index=0, rows=4, compression="none")


@pytest.mark.parametrize("room", [0, 300, 1500])  # 300: for the lengths alone
def test_a_fragment_that_does_not_fit_on_the_disk_fails_at_once(tmp_path, room):
    with files_of_at_most(room), pytest.raises(MillraceError, match=r"fragment-\w+(\.index)?: File too large"):
        write_fragment(batch(0, 100), ShufflePlan((1, 1, 0), seed=1), str(tmp_path))


def test_a_cut_fragment_is_noticed(tmp_path):
    fragment = write_fragment(batch(0, 100), ShufflePlan((1, 1, 0), seed=1), str(tmp_path))
    with open(fragment.path, "r+b") as file:
        file.truncate(500)
    with pytest.raises(OSError, match="the fragment is truncated"):
        list(merge_buckets(FragmentTable.of([fragment]), range(2), seed=1))
