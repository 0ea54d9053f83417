"""The shuffle's arithmetic: buckets, shards and permutations."""

from __future__ import annotations

import numpy as np
import pytest

from beam_jobs.core.shuffle_plan import BUCKET_BYTES, ShufflePlan, group_buckets, permutation, plan_shuffle

SHARES = {"train": 0.8, "eval": 0.1, "test": 0.1}
MB = 2**20


@pytest.mark.parametrize(
    ("shares", "megabytes", "num_shards", "shard_mb", "one_bucket", "buckets"),
    [
        (SHARES, 1, None, 64, False, (4, 1, 1)),  # small data: four train shards, so that readers can interleave
        (SHARES, 100, None, 64, False, (5, 1, 1)),
        (SHARES, 1000, None, 64, False, (50, 7, 7)),  # four buckets to a shard, so that whole buckets make its size
        (SHARES, 1, 8, 64, False, (8, 1, 1)),
        (SHARES, 1000, 8, 64, False, (40, 5, 5)),  # more buckets than shards, where a shard would not fit in memory
        (SHARES, 1000, 8, 64, True, (8, 1, 1)),
        (SHARES, 1, 512, 64, False, (512, 64, 64)),
        ({"train": 0.5, "test": 0.5}, 1, 3, 64, False, (3, 0, 3)),
    ],
)
def test_cells_by_split(shares, megabytes, num_shards, shard_mb, one_bucket, buckets):
    plan = plan_shuffle(
        shares,
        estimated_bytes=megabytes * MB,
        num_shards=num_shards,
        shard_bytes=shard_mb * MB,
        seed=0,
        one_bucket_each=one_bucket,
    )
    assert plan.buckets == buckets


def test_no_cell_is_expected_to_outgrow_memory():
    plan = plan_shuffle(SHARES, estimated_bytes=10**10, num_shards=1, shard_bytes=64 * MB, seed=0)
    assert 10**10 * 0.8 / plan.buckets[0] <= BUCKET_BYTES


@pytest.mark.parametrize(
    ("bucket_mb", "num_shards", "shard_mb", "least", "shards"),
    [
        ([10] * 8, 8, 64, 1, 8),
        ([10] * 8, 2, 64, 1, 2),
        ([16] * 8, None, 64, 1, 2),
        ([1] * 8, None, 64, 1, 1),
        ([1] * 8, None, 64, 4, 4),
        ([16] * 2, 5, 64, 1, 2),  # never more shards than buckets
    ],
)
def test_cells_make_shards(bucket_mb, num_shards, shard_mb, least, shards):
    groups = group_buckets([c * MB for c in bucket_mb], num_shards=num_shards, shard_bytes=shard_mb * MB, least=least)
    assert len(groups) == shards
    assert [bucket for group in groups for bucket in group] == list(range(len(bucket_mb)))


def test_a_batch_is_dealt_the_same_way_again_and_only_to_its_split():
    plan = ShufflePlan((4, 0, 2), seed=7)
    splits = np.array([0, 2] * 500, np.int8)
    first = plan.draw(splits, 3, 1000)
    assert (first == plan.draw(splits, 3, 1000)).all()
    assert set(first[splits == 0]) == {0, 1, 2, 3}
    assert set(first[splits == 2]) == {4, 5}


def test_rows_spread_evenly_and_without_regard_to_their_place():
    plan = ShufflePlan((8, 0, 0), seed=0)
    buckets = np.concatenate([plan.draw(np.zeros(5000, np.int8), 0, offset) for offset in range(20)])
    counts = np.bincount(buckets)
    assert abs(counts / len(buckets) - 1 / 8).max() < 0.005
    assert abs(np.corrcoef(np.arange(len(buckets)), buckets)[0, 1]) < 0.01


def test_all_records_of_a_cell_are_permuted():
    order = permutation(0, 3, 10_000)
    assert sorted(order) == list(range(10_000))
    assert abs(np.corrcoef(np.arange(10_000), order)[0, 1]) < 0.03
    assert (order != permutation(0, 4, 10_000)).any()
    assert (order == permutation(0, 3, 10_000)).all()
