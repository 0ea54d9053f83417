"""The shuffle: its plan, its fragments and pieces, and the order of the records of a real job."""

from __future__ import annotations

import collections
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest

from beam_jobs.core.shuffle_plan import (
    ShardOptions,
    ShufflePlan,
    group_buckets,
    plan_shuffle,
)
from beam_jobs.records import examples
from beam_jobs.records.shards import WriteShards
from beam_jobs.records.shuffle import ByFile, ByValue, Piece, ShuffledGroup, pieces_by_bucket
from schemas.errors import MillraceError
from schemas.storage.tfrecord import read_frames
from tests.support.datasets import written
from tests.support.shuffle_scores import SCHEMA, read_places, score, stored_places, write_numbered

Sent = tuple[bytes, bytes]


def piece(records: list[bytes]) -> Piece:
    frames = examples.framed(records)
    (only,) = pieces_by_bucket(frames, np.zeros(len(records), np.int64))
    return only[1]


def records_in(data: bytes) -> list[bytes]:
    return [record for frames in read_frames([data]) for record in frames.records]


def shuffled(pieces: list[Piece], *, budget: int, seed: int = 0) -> list[bytes]:
    with ShuffledGroup((seed,), budget=budget, chunk=1 << 20) as group:
        group.read(iter(pieces))
        assert group.rows == sum(len(p.lengths) for p in pieces)
        chunks = list(group.chunks())
    return [record for frames in chunks for record in records_in(bytes(examples.joined(frames)))]


class TestShuffledGroup:
    @pytest.mark.parametrize("budget", [1 << 20, 3000, 700], ids=lambda budget: f"{budget} bytes")
    def test_every_record_comes_out_once_in_another_order(self, budget):
        records = [b"%d" % i * (1 + i % 7) for i in range(1000)]
        out = shuffled([piece(records[i : i + 40]) for i in range(0, 1000, 40)], budget=budget)
        assert collections.Counter(out) == collections.Counter(records)
        assert out != records

    def test_a_record_larger_than_the_budget_is_kept_whole(self):
        records = [b"a" * 5000, b"b" * 9000, b"c"]
        assert sorted(shuffled([piece([r]) for r in records], budget=1000)) == sorted(records)

    def test_every_place_is_equally_likely(self):
        """Chi-squared over 6 records x 6 places: its 0.1 % limit is 53, at 25 degrees of freedom. Seeds are fixed."""
        records = [b"%d" % i for i in range(6)]
        pieces = [piece(records[i : i + 2]) for i in range(0, 6, 2)]
        tries = 240
        counts = np.zeros((6, 6))
        for seed in range(tries):
            for place, record in enumerate(shuffled(pieces, budget=60, seed=seed)):
                counts[int(record), place] += 1
        expected = tries / 6
        assert ((counts - expected) ** 2 / expected).sum() < 53

    def test_memory_is_bounded_by_the_budget(self):
        """24 MB of records through a budget of 1 MB. Each record is made when it is asked for."""
        template = piece([bytes(1000)] * 100)
        tracemalloc.start()
        try:
            with ShuffledGroup((0,), budget=1 << 20, chunk=1 << 16) as group:
                group.read(Piece(template.lengths, bytes(bytearray(template.data))) for _ in range(240))
                read = sum(map(len, group.chunks()))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert read == 24_000
        assert peak < 6 << 20


class OnePass:
    """Pieces as a runner hands them over on a cluster: an iterable that can be gone through once, and has no length."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces, self.passes = pieces, 0

    def __iter__(self) -> Iterator[Sent]:
        self.passes += 1
        assert self.passes == 1, "gone through more than once"
        return ((p.lengths.tobytes(), p.data) for p in self.pieces)


def options(folder: Path, *, shard_bytes: float = 1e9, num_shards: int | None = None) -> ShardOptions:
    return ShardOptions(ShufflePlan((2, 1, 0), 3), (num_shards, None, None), shard_bytes, "none", str(folder), None)


class TestWriteShards:
    def test_goes_through_a_group_once(self, tmp_path):
        records = [b"%d" % i for i in range(300)]
        pieces = OnePass([piece(records[i : i + 7]) for i in range(0, 300, 7)])
        (shard,) = WriteShards(options(tmp_path)).process((1, pieces))
        assert pieces.passes == 1
        assert (shard.split, shard.rows, shard.index) == ("train", 300, 1 << 32)
        assert sorted(records_in(Path(shard.path).read_bytes())) == sorted(records)

    @pytest.mark.parametrize(("num_shards", "files"), [(None, 5), (2, 1)])
    def test_cuts_a_group_by_size_unless_the_number_is_given(self, tmp_path, num_shards, files):
        records = [bytes(84) for _ in range(1000)]  # 100 bytes each with their frames
        made = options(tmp_path, shard_bytes=20_000, num_shards=num_shards)
        shards = list(WriteShards(made).process((0, OnePass([piece(records)]))))
        assert [shard.index for shard in shards] == list(range(files))
        assert sum(shard.rows for shard in shards) == 1000
        for shard in shards:
            data = Path(shard.path).read_bytes()
            assert (len(data), len(records_in(data))) == (shard.bytes, shard.rows)
            assert shard.bytes == pytest.approx(100_000 / files, rel=0.2)


RECORDS = [bytes([i]) * (i % 9) for i in range(100)]
BUCKETS = np.arange(100) % 3


def pieces() -> list[tuple[int, Piece]]:
    return list(pieces_by_bucket(examples.framed(RECORDS), BUCKETS))


@pytest.mark.parametrize("by", ["value", "file"])
def test_pieces_come_out_as_they_went_in(tmp_path: Path, by: str) -> None:
    carrier = ByValue() if by == "value" else ByFile(str(tmp_path))
    sent = list(carrier.send(iter(pieces())))
    assert [bucket for bucket, _ in sent] == [0, 1, 2]
    received = list(carrier.receive(item for _, item in reversed(sent)))
    for (bucket, piece), received_piece in zip(reversed(pieces()), received, strict=True):
        assert records_in(received_piece.data) == [record for i, record in enumerate(RECORDS) if i % 3 == bucket]
        assert received_piece.lengths.tolist() == piece.lengths.tolist()
    assert records_in(next(carrier.receive([sent[0][1]])).data) == RECORDS[::3]  # again, as a repeated bundle does


def test_what_is_sent_by_file_is_as_small_for_many_records_as_for_few(tmp_path: Path) -> None:
    coder = beam.coders.registry.get_coder(ByFile.sent)

    def sent(records: int) -> int:
        frames = examples.framed([bytes(100)] * records)
        (item,) = ByFile(str(tmp_path)).send(pieces_by_bucket(frames, np.zeros(records, np.int64)))
        return len(coder.encode(item))

    assert sent(20_000) < sent(1) + 10  # digits


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    carrier = ByFile(str(tmp_path))
    *_, (_, last) = carrier.send(iter(pieces()))
    path = Path(last[0])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MillraceError, match=rf"{path.name}: expected .* bytes .*: the file is truncated"):
        list(carrier.receive([last]))


ROWS = 40_000
SIGMAS = 4.5  # a uniform shuffle exceeds them once in 150,000 times; the seed is fixed


@pytest.fixture(scope="module")
def shuffled_job(tmp_path_factory):
    """A dataset of numbered rows, of several ranges of the input and eight shards."""
    folder = tmp_path_factory.mktemp("numbered")
    write_numbered(str(folder / "raw.csv"), ROWS)
    return written(folder, SCHEMA, str(folder / "raw.csv"), num_shards=8, range_mb=0.1).path


def assert_fair(shuffle_score, *, shards):
    for name in ("place", "shard", "neighbour"):
        assert abs(getattr(shuffle_score, name)) < SIGMAS * shuffle_score.noise, name
    # If rows are dealt uniformly, (rows - 1) * spread is about chi squared with shards - 1 degrees of freedom.
    assert (shuffle_score.rows - 1) * shuffle_score.spread <= (shards - 1) + 6 * (2 * (shards - 1)) ** 0.5


@pytest.mark.slow
def test_places_in_the_output_tell_nothing_of_places_in_the_input(shuffled_job):
    shards = stored_places(shuffled_job)
    assert sorted(np.concatenate(shards)) == list(range(ROWS))
    assert_fair(score(shards), shards=8)


@pytest.mark.slow
def test_every_shard_is_shuffled_completely(shuffled_job):
    for shard in stored_places(shuffled_job):
        assert_fair(score([shard]), shards=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"cache_bytes": 0, "shuffle_buffer": 1000}, {"cache_bytes": 0, "shuffle_buffer": 0}, {}]
)
def test_training_reads_them_as_well_shuffled(shuffled_job, options):
    assert_fair(score([read_places(shuffled_job, seed=1, **options)]), shards=1)


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
