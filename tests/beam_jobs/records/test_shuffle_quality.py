"""The job's shuffle, scored on a real job: positions in input and output are independent."""

from __future__ import annotations

import numpy as np
import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.runs.job import run_job
from benchmarks.shuffle_quality import SCHEMA, read_places, score, stored_places, write_numbered

pytestmark = pytest.mark.slow

ROWS = 40_000
SIGMAS = 4.5  # a uniform shuffle exceeds them once in 150,000 times; the seed is fixed


@pytest.fixture(scope="module")
def shuffled_job(tmp_path_factory):
    """A dataset of numbered rows, of several ranges of the input and eight shards."""
    folder = tmp_path_factory.mktemp("numbered")
    write_numbered(str(folder / "raw.csv"), ROWS)
    (folder / "numbered.yaml").write_text(SCHEMA)
    run_job(
        JobOptions(
            schema=str(folder / "numbered.yaml"),
            input=(str(folder / "raw.csv"),),
            output=str(folder / "out"),
            num_shards=8,
            range_mb=0.1,
            quiet=True,
        )
    )
    return str(folder / "out")


def assert_fair(found, *, shards):
    for name in ("place", "shard", "neighbour"):
        assert abs(getattr(found, name)) < SIGMAS * found.noise, name
    # If rows are dealt uniformly, (rows - 1) * spread is about chi squared with shards - 1 degrees of freedom.
    assert (found.rows - 1) * found.spread <= (shards - 1) + 6 * (2 * (shards - 1)) ** 0.5


def test_places_in_the_output_tell_nothing_of_places_in_the_input(shuffled_job):
    shards = stored_places(shuffled_job)
    assert sorted(np.concatenate(shards)) == list(range(ROWS))
    assert_fair(score(shards), shards=8)


def test_every_shard_is_shuffled_completely(shuffled_job):
    for shard in stored_places(shuffled_job):
        assert_fair(score([shard]), shards=1)


@pytest.mark.parametrize(
    "options", [{"cache_bytes": 0, "shuffle_buffer": 1000}, {"cache_bytes": 0, "shuffle_buffer": 0}, {}]
)
def test_training_reads_them_as_well_shuffled(shuffled_job, options):
    assert_fair(score([read_places(shuffled_job, seed=1, **options)]), shards=1)


@pytest.mark.parametrize(
    ("order", "seen_by"),
    [
        ([np.arange(1000)], "place"),  # nothing is shuffled
        ([np.arange(500) * 2, np.arange(500) * 2 + 1], "neighbour"),  # dealt in turn, and not shuffled
        ([np.random.default_rng(0).permutation(500), 500 + np.random.default_rng(1).permutation(500)], "shard"),
        # Each shard is a block of the input in random order; the blocks' order hides it from `place` and `shard`.
        ([block + np.random.default_rng(0).permutation(250) for block in (250, 750, 500, 0)], "spread"),
        ([np.concatenate([np.random.default_rng(b).permutation(10) + 10 * b for b in range(100)])], "neighbour"),
    ],
)
def test_the_score_sees_a_bad_shuffle(order, seen_by):
    found = score(order)
    assert abs(getattr(found, seen_by)) > 0.3


def test_a_uniform_shuffle_scores_near_zero():
    places = np.random.default_rng(7).permutation(100_000)
    assert_fair(score(np.split(places, 8)), shards=8)
