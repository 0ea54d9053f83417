"""Encoded batches -> shuffled shards: through local files on one machine, through the runner's shuffle on a cluster."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_jobs.core import progress
from beam_jobs.core.shuffle_plan import ShardOptions, bucket_order, permutation
from beam_jobs.output.encode import Encoded
from beam_jobs.output.fragments import (
    Fragment,
    FragmentTable,
    WrittenShard,
    merge_buckets,
    write_fragment,
    write_shard,
)
from schemas.dataset import layout
from schemas.spec.table import SPLITS
from schemas.storage import folders


class ShuffleIntoShards(beam.PTransform):
    """Encoded -> WrittenShard. The order of the records is uniformly random within their split."""

    def __init__(self, options: ShardOptions) -> None:
        super().__init__()
        self.options = options

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        if self.options.through_files:
            fragments = batches | "WriteFragments" >> beam.Map(
                write_fragment, plan=self.options.plan, folder=self.options.staging
            )
            return (
                batches.pipeline
                | "Once" >> beam.Create([None])
                | "MergeFragments" >> beam.ParDo(MergeFragments(self.options), beam.pvalue.AsList(fragments))
            )
        return (
            batches
            | "AssignShards" >> beam.ParDo(AssignShards(self.options))
            | "ByShard" >> beam.GroupByKey()
            | "WriteShards" >> beam.ParDo(WriteShards(self.options))
        )


class MergeFragments(beam.DoFn):
    """None, with all fragments as side input -> WrittenShard. Merges as many shards in parallel as there are cores."""

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, _: None, fragments: list[Fragment]) -> Iterator[WrittenShard]:
        if not fragments:
            return
        options, table = self.options, FragmentTable.of(fragments)
        jobs = []
        for split, name in enumerate(SPLITS):
            first, count = options.plan.first(name), options.plan.buckets[split]
            if count:
                groups = options.group(split, table.bucket_sizes(range(first, first + count)))
                jobs += [(name, i, range(first + c.start, first + c.stop)) for i, c in enumerate(groups)]
        progress.enter("merging")
        progress.add(shards=len(jobs))

        def merge(job: tuple[str, int, range]) -> WrittenShard:
            split, index, buckets = job
            shard = write_shard(
                layout.join(options.staging, f"shard-{uuid.uuid4().hex}"),
                merge_buckets(table, buckets, seed=options.plan.seed),
                split=split,
                index=index,
                rows=table.bucket_rows(buckets),
                compression=options.compression,
            )
            progress.add(merged=1)
            return shard

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            yield from pool.map(merge, jobs)


class AssignShards(beam.DoFn):
    """Encoded -> ((split, shard), frames), the pieces that the runner shuffles."""

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, encoded: Encoded) -> Iterator[tuple[tuple[int, int], list[bytes]]]:
        plan = self.options.plan
        buckets = plan.draw(encoded.splits, encoded.file, encoded.offset)
        order = bucket_order(buckets)
        bounds = np.flatnonzero(np.diff(buckets[order])) + 1
        for rows in np.split(order, bounds):
            split = int(encoded.splits[rows[0]])
            bucket = int(buckets[rows[0]]) - plan.first(SPLITS[split])
            yield (split, bucket), encoded.frames.take(pa.array(rows)).to_pylist()


class WriteShards(beam.DoFn):
    """((split, shard), pieces) -> WrittenShard. Each bucket is a shard, since the keys must be known in advance."""

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, element: tuple[tuple[int, int], Iterable[list[bytes]]]) -> Iterator[WrittenShard]:
        (split, index), pieces = element
        frames = [frame for piece in pieces for frame in piece]
        bucket = self.options.plan.first(SPLITS[split]) + index
        order = permutation(self.options.plan.seed, bucket, len(frames)).tolist()
        path = os.path.join(tempfile.gettempdir(), f"shard-{uuid.uuid4().hex}")
        try:
            local = write_shard(
                path,
                (b"".join([frames[i] for i in order[at : at + 1024]]) for at in range(0, len(order), 1024)),
                split=SPLITS[split],
                index=index,
                rows=len(frames),
                compression=self.options.compression,
            )
            staged = layout.join(self.options.staging, os.path.basename(path))
            folders.upload(local.path, staged)
            yield dataclasses.replace(local, path=staged)
        finally:
            if os.path.exists(path):
                os.remove(path)
