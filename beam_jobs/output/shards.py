"""Encoded batches -> shuffled shards: through files on one machine, through the runner's own shuffle on a cluster."""

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
from beam_jobs.core.shuffle_plan import ShardOptions, in_cells, permutation
from beam_jobs.output.encode import Encoded
from beam_jobs.output.fragments import (
    Fragment,
    FragmentTable,
    WrittenShard,
    merge_cells,
    write_fragment,
    write_shard,
)
from schemas.dataset import layout
from schemas.spec.table import SPLITS
from schemas.storage import folders


class ShuffleIntoShards(beam.PTransform):
    """Encoded -> WrittenShard: every record in one shard, in an order that is uniformly random within its split."""

    def __init__(self, options: ShardOptions) -> None:
        super().__init__()
        self.options = options

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        if self.options.through_files:
            fragments = batches | "WriteFragments" >> beam.Map(
                write_fragment, deal=self.options.deal, folder=self.options.staging
            )
            return (
                batches.pipeline
                | "Once" >> beam.Create([None])
                | "MergeFragments" >> beam.ParDo(MergeFragments(self.options), beam.pvalue.AsList(fragments))
            )
        return (
            batches
            | "DealToShards" >> beam.ParDo(DealToShards(self.options))
            | "ByShard" >> beam.GroupByKey()
            | "WriteShards" >> beam.ParDo(WriteShards(self.options))
        )


class MergeFragments(beam.DoFn):
    """None, with all fragments beside it -> WrittenShard. Merges a shard per core at a time; deletes nothing."""

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, _: None, fragments: list[Fragment]) -> Iterator[WrittenShard]:
        if not fragments:
            return
        options, table = self.options, FragmentTable.of(fragments)
        jobs = []
        for split, name in enumerate(SPLITS):
            first, count = options.deal.first(name), options.deal.cells[split]
            if count:
                groups = options.group(split, table.cell_sizes(range(first, first + count)))
                jobs += [(name, i, range(first + c.start, first + c.stop)) for i, c in enumerate(groups)]
        progress.enter("merging")
        progress.add(shards=len(jobs))

        def merge(job: tuple[str, int, range]) -> WrittenShard:
            split, index, cells = job
            shard = write_shard(
                layout.join(options.staging, f"shard-{uuid.uuid4().hex}"),
                merge_cells(table, cells, seed=options.deal.seed),
                split=split,
                index=index,
                rows=table.cell_rows(cells),
                compression=options.compression,
            )
            progress.add(merged=1)
            return shard

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            yield from pool.map(merge, jobs)


class DealToShards(beam.DoFn):
    """Encoded -> ((split, shard), frames): the pieces that the runner's shuffle carries."""

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, encoded: Encoded) -> Iterator[tuple[tuple[int, int], list[bytes]]]:
        deal = self.options.deal
        cells = deal.draw(encoded.splits, encoded.file, encoded.offset)
        order = in_cells(cells)
        bounds = np.flatnonzero(np.diff(cells[order])) + 1
        for rows in np.split(order, bounds):
            split = int(encoded.splits[rows[0]])
            cell = int(cells[rows[0]]) - deal.first(SPLITS[split])
            yield (split, cell), encoded.frames.take(pa.array(rows)).to_pylist()


class WriteShards(beam.DoFn):
    """((split, shard), pieces) -> WrittenShard. A cell is a shard: the runner's shuffle wants its keys in advance."""

    def __init__(self, options: ShardOptions) -> None:
        self.options = options

    def process(self, element: tuple[tuple[int, int], Iterable[list[bytes]]]) -> Iterator[WrittenShard]:
        (split, index), pieces = element
        frames = [frame for piece in pieces for frame in piece]
        cell = self.options.deal.first(SPLITS[split]) + index
        order = permutation(self.options.deal.seed, cell, len(frames)).tolist()
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
