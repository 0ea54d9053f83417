"""Shuffles encoded records into shards: in a local job through local files, on a cluster by the runner."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core import progress, workers
from beam_jobs.core.shuffle_plan import ShardOptions
from beam_jobs.core.workers import TURN
from beam_jobs.records.encode import Encoded
from beam_jobs.records.examples import frames, lengths
from beam_jobs.records.fragments import (
    Fragment,
    FragmentTable,
    WrittenShard,
    merge_buckets,
    write_fragment,
    write_shard,
)
from beam_jobs.records.shuffle import CHUNK, ByFile, ByValue, ShuffledGroup, pieces_by_bucket
from schemas import storage
from schemas.concurrency import usable_cores
from schemas.dataset import layout
from schemas.spec.table import SPLITS

UPLOADS = 4  # the number of shards that are merged and uploaded at once; each has one request in memory


class ShuffleIntoShards(beam.PTransform):
    """Turns Encoded batches into WrittenShards. The order of the records is uniformly random within their split."""

    def __init__(self, options: ShardOptions) -> None:
        super().__init__()
        self.options = options

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        if self.options.fragments is not None:
            fragments = batches | "WriteFragments" >> beam.ParDo(WriteFragments(self.options))
            return (
                batches.pipeline
                | "Once" >> beam.Create([None])
                | "MergeFragments" >> beam.ParDo(MergeFragments(self.options), beam.pvalue.AsList(fragments))
            )
        return (
            batches
            | "AssignShards" >> beam.ParDo(AssignShards(self.options)).with_output_types(carrier(self.options).sent)
            | "ByShard" >> beam.GroupByKey()
            | "WriteShards" >> beam.ParDo(WriteShards(self.options))
        )


class WriteFragments(beam.DoFn):
    """Writes each Encoded batch to a Fragment. A thread writes one batch while the next is transformed and encoded."""

    pool: ThreadPoolExecutor
    pending: list[Future[Fragment]]  # at most one: the fragment that the thread is writing

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def setup(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="fragments")

    def teardown(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def start_bundle(self) -> None:
        self.pending = []

    def process(self, encoded: Encoded) -> Iterator[Fragment]:
        assert self.options.fragments is not None  # noqa: S101 - else there are no fragments
        yield from self.written()
        self.pending = [self.pool.submit(write_fragment, encoded, self.options.plan, self.options.fragments)]

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self.written())

    def written(self) -> Iterator[Fragment]:
        """Waits until the thread has written its fragment, and yields it."""
        pending, self.pending = self.pending, []
        for future in pending:
            yield future.result()


class MergeFragments(beam.DoFn):
    """Merges all fragments, which come as a side input, into WrittenShards. Each thread merges one shard at a time.

    If the output is in a bucket, each thread also uploads its shard.
    """

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, _: None, fragments: list[Fragment]) -> Iterator[WrittenShard]:
        if not fragments:
            return
        progress.JOB.enter("writing")
        merges = list(self.merges(FragmentTable.of(fragments)))
        progress.JOB.add(shards=len(merges))
        threads = usable_cores() if storage.is_local(self.options.staging) else max(UPLOADS, usable_cores())
        with ThreadPoolExecutor(threads) as pool:
            yield from list(pool.map(self.merge, merges))

    def merges(self, table: FragmentTable) -> Iterator[tuple[str, int, FragmentTable]]:
        """Yields the shards to write: the split, the shard's number in the split, and the shard's buckets."""
        plan = self.options.plan
        for split, name in enumerate(SPLITS):
            first, count = plan.first(name), plan.buckets[split]
            of_split = table.of_buckets(range(first, first + count))
            groups = self.options.group(split, of_split.bucket_sizes()) if count else ()
            for index, group in enumerate(groups):
                yield name, index, of_split.of_buckets(range(first + group.start, first + group.stop))

    def merge(self, part: tuple[str, int, FragmentTable]) -> WrittenShard:
        """Writes a shard to a new file in staging, with a random name."""
        split, index, buckets = part
        shard = write_shard(
            layout.join(self.options.staging, f"shard-{uuid.uuid4().hex}"),
            merge_buckets(buckets, seed=self.options.plan.seed),
            split=split,
            index=index,
            compression=self.options.compression,
        )
        progress.JOB.add(written=1)
        return shard


def carrier(options: ShardOptions) -> ByValue | ByFile:
    """Returns how records go through the runner's shuffle: the records themselves, or the places of files with them."""
    return ByValue() if options.spills is None else ByFile(options.spills)


class AssignShards(beam.DoFn):
    """Draws a bucket for each record, and yields pairs (bucket, piece), which the runner groups by bucket.

    A piece holds the records of one bucket, in the form in which `ByValue` or `ByFile` sends them. Several batches are
    collected before they are cut into pieces: with thousands of buckets, a single batch would be cut into pieces of one
    record each.
    """

    waiting: list[tuple[np.ndarray, pa.LargeBinaryArray]]  # the collected batches: the records' buckets, and the frames

    def __init__(self, options: ShardOptions) -> None:
        self.options = options
        self.carrier = carrier(options)
        self.collect = self.carrier.collect

    def start_bundle(self) -> None:
        self.waiting = []

    def process(self, encoded: Encoded) -> Iterator[tuple[int, Any]]:
        buckets = self.options.plan.draw(encoded.splits, encoded.file, encoded.offset)
        self.waiting.append((buckets, frames(encoded.records)))
        if sum(records.nbytes for _, records in self.waiting) >= self.collect:
            yield from self.pieces()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self.pieces())

    def pieces(self) -> Iterator[tuple[int, Any]]:
        """Yields the collected records as pieces, by bucket, and empties `waiting`."""
        if self.waiting:
            collected = pa.concat_arrays([records for _, records in self.waiting])
            buckets = np.concatenate([buckets for buckets, _ in self.waiting])
            self.waiting = []
            yield from self.carrier.send(pieces_by_bucket(collected, buckets))


class WriteShards(beam.DoFn):
    """Permutes the records of each bucket and writes them as one or more shards. Takes (bucket, sent pieces).

    Reads the pieces only once, and holds few of them in memory. The number of buckets is planned before the data is
    read, so a bucket may turn out larger than a shard should be. Such a bucket is cut into several shards, unless
    `--num_shards` fixes the number of shards.
    """

    def __init__(self, options: ShardOptions) -> None:
        self.options = options
        self.carrier = carrier(options)
        self.meter = workers.Meter("writing")

    def process(self, element: tuple[int, Iterable[Any]]) -> Iterator[WrittenShard]:
        with TURN:
            shards = list(self.write(*element))
        yield from shards

    def write(self, bucket: int, pieces: Iterable[Any]) -> Iterator[WrittenShard]:
        """Writes the shards of a bucket, and yields each when it is written."""
        # The shards of bucket b get the indices (b << 32), (b << 32) + 1, ... In this order, the shards of a split are
        # sorted by bucket, and within a bucket by their number.
        options = self.options
        split = options.plan.split_of(bucket)
        index = bucket - options.plan.first(split)
        chunk = int(min(CHUNK, max(1.0, options.shard_bytes / 8)))
        with ShuffledGroup((options.plan.seed, 1 << 32, bucket), chunk=chunk) as group:
            group.read(self.carrier.receive(pieces))
            by_size = options.num_shards[SPLITS.index(split)] is None
            count = min(group.rows, max(1, round(group.bytes / options.shard_bytes))) if by_size else 1
            parts = _Parts(group.chunks())
            for i in range(count):
                shard = write_shard(
                    options.attempt(split, index, i),
                    parts.up_to(group.bytes * (i + 1) / count),
                    split=split,
                    index=(index << 32) + i,
                    compression=options.compression,
                )
                self.meter.add(read=shard.rows)
                yield shard


class _Parts:
    """Divides a stream of chunks of records into parts, by the number of bytes."""

    def __init__(self, chunks: Iterator[pa.LargeBinaryArray]) -> None:
        self._chunks = chunks
        self._bytes = 0

    def up_to(self, end: float) -> Iterator[pa.LargeBinaryArray]:
        """Yields the chunks of the next part, until this and the earlier parts together have at least `end` bytes."""
        while self._bytes < end:
            frames = next(self._chunks)
            self._bytes += int(lengths(frames).sum())
            yield frames
