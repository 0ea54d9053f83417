"""Bundles of listed images, or of pairs of them -> shards of predictions; counts each and stores every reject."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core import progress, workers
from beam_jobs.core.accounting import COUNTS, REJECTS, WRITTEN, RejectFile, give_up_if_certain, write_reject_file
from beam_jobs.core.counting import counted, covered
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.workers import TURN
from beam_jobs.predicting.served import served
from beam_jobs.predicting.work import PREDICTED, Work, at_end
from schemas import storage
from schemas.concurrency import ByteBudget, map_in_order, prefetch
from schemas.dataset import layout
from schemas.exports.images import predict_images
from schemas.exports.model import ServedModel
from schemas.images.items import Item
from schemas.images.listing import plain
from schemas.images.reading import DECODING_BYTES, READERS, ReadItem, batches, read_item
from schemas.predictions.encoding import OFFSET, SOURCE, predictions
from schemas.rejects import Reject
from schemas.spec.forms import CellError
from schemas.spec.images import ImageSchema
from schemas.storage.json_files import parse_json

ITEMS_A_FILE = 10_000
_decoding = ByteBudget(DECODING_BYTES)  # of all batches that this process decodes


@dataclasses.dataclass(frozen=True)
class StagedItems:
    """Where the items are staged. This is all that the pipeline holds of them."""

    folder: str
    parts: int
    bundle: int  # items that a worker is given at once

    def read(self, part: int) -> Iterator[tuple[int, tuple[Item, ...]]]:
        """The items of a part, in bundles with their numbers."""
        lines = storage.read_bytes(_part(self.folder, part)).splitlines()
        for start in range(0, len(lines), self.bundle):
            yield (
                part * ITEMS_A_FILE + start,
                tuple(_item(parse_json(line)) for line in lines[start : start + self.bundle]),
            )

    def create(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The bundles, distributed over the workers."""
        return (
            pipeline
            | "ListingParts" >> beam.Create(list(range(self.parts)), reshuffle=False)
            | "Bundles" >> beam.FlatMap(self.read)
            | "SpreadBundles" >> beam.Reshuffle()
        )


def stage_items(folder: str, items: Iterable[Item], *, bundle: int) -> StagedItems:
    """Writes items to files, of which few are in memory at once."""
    lines: list[bytes] = []
    parts = 0
    for item in items:
        problem = None if item.problem is None else dataclasses.astuple(item.problem)
        raw = item.raw.decode("latin-1")
        lines.append(json.dumps([item.source, item.place, dict(item.files), item.names, problem, raw]).encode() + b"\n")
        if len(lines) == ITEMS_A_FILE:
            storage.write_bytes(_part(folder, parts), b"".join(lines))
            parts, lines = parts + 1, []
    if lines:
        storage.write_bytes(_part(folder, parts), b"".join(lines))
        parts += 1
    return StagedItems(folder, parts, bundle)


def _part(folder: str, part: int) -> str:
    return layout.join(folder, f"items-{part:05d}.jsonl")


def _item(fields: list[Any]) -> Item:
    source, place, files, names, problem, raw = fields
    return Item(source, place, files, tuple(names), problem and CellError(*problem), raw.encode("latin-1"))


class PredictImages(beam.DoFn):
    """A bundle of items -> nothing; at the bundle's end, the shards that were written.

    Side outputs: (CountKey, items) in COUNTS, RejectFile in REJECTS.
    """

    phase = "predicting"

    def __init__(self, schema: ImageSchema, work: Work) -> None:
        self.schema, self.work = schema, work
        self.meter = workers.Meter(self.phase)

    def setup(self) -> None:
        self._threads = os.cpu_count() or 1
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="predict")
        self._writer = self.work.writer()

    def teardown(self) -> None:
        self._writer.drop()
        for pool in (self._readers, self._pool):
            pool.shutdown(cancel_futures=True)

    def start_bundle(self) -> None:
        self._writer.drop()  # what an attempt that failed has left

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from at_end(self._writer.close())

    def process(self, bundle: tuple[int, Sequence[Item]]) -> Iterator[beam.pvalue.TaggedOutput]:
        first, items = bundle
        workers.tell_begun(self.work.staging)
        progress.enter(self.phase)
        progress.begin(first)
        model = served(self.work.export)
        rejects: list[Reject] = []
        predicted = 0
        try:
            with TURN:
                for read, found, refused, encoded in self._answers(model, items):
                    rejects += refused
                    if found is not None:
                        place = found.column(SOURCE)[0].as_py(), found.column(OFFSET)[0].as_py()
                        self._writer.write(encoded, found.schema, rows=found.num_rows, first=place)
                        predicted += found.num_rows
                    progress.add(first, read=read, done=read, rejected=len(refused))
                    self.meter.add(read=read, done=read, rejected=len(refused))
                    give_up_if_certain(self.work.limit, self.work.total, records=self.schema.records)
        finally:
            written = None
            if rejects:
                written = RejectFile(write_reject_file(self.work.staging, self.phase, rejects), len(rejects))
        yield from counted(LISTING, read=len(items), rejects=rejects)
        yield beam.pvalue.TaggedOutput(COUNTS, ((str(LISTING), WRITTEN, PREDICTED), predicted))
        yield covered(LISTING, len(items))
        if written:
            yield beam.pvalue.TaggedOutput(REJECTS, written)

    def _answers(self, model: ServedModel, items: Sequence[Item]) -> Iterator[_Answer]:
        read = functools.partial(read_item, images=self.schema.images)
        everything = map_in_order(self._readers, read, items, max_pending=2 * READERS)
        answer = functools.partial(_answer, model=model, schema=self.schema, work=self.work)
        pending = prefetch(batches(everything, self.work.batch_size))
        yield from map_in_order(self._pool, answer, pending, max_pending=self._threads + 1)


class _Answer(NamedTuple):
    """How many items a batch has; their predictions, None where there are none; its rejects; and what to write."""

    read: int
    found: pa.RecordBatch | None
    rejects: Sequence[Reject]
    encoded: Any


def _answer(batch: list[ReadItem], *, model: ServedModel, schema: ImageSchema, work: Work) -> _Answer:
    with _decoding.reserve(sum(read.decoding for read in batch)):
        predicted = predict_images(batch, model)
    rejects, items = list(predicted.rejects.values()), [read.item for read in predicted.answered]
    if not items:
        return _Answer(len(batch), None, rejects, None)
    columns = zip(*(map(plain, item.names) for item in items), strict=True)
    found = predictions(
        sources=pa.array([plain(item.source) for item in items], pa.string()).dictionary_encode(),
        offsets=np.array([item.place for item in items], np.int64),
        keys=None,
        passed={n: pa.array(c, pa.string()) for n, c in zip(schema.image_names, columns, strict=False)},
        outputs=predicted.outputs,
        classes=work.classes,
    )
    return _Answer(len(batch), found, rejects, work.form.encode(found))
