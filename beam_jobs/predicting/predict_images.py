"""Bundles of listed images, or of pairs of them -> shards of predictions; counts each and stores every reject."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core import progress, worker_metrics
from beam_jobs.core.accounting import COUNTS, REJECTS, WRITTEN, RejectFile, give_up_if_certain, write_reject_file
from beam_jobs.core.counting import counted, covered
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.turns import TURN
from beam_jobs.predicting.served import served
from beam_jobs.predicting.work import PREDICTED, Work, at_end
from schemas import storage
from schemas.concurrency import ByteBudget, map_in_order, prefetch
from schemas.dataset import layout
from schemas.images.items import Item
from schemas.images.listing import plain
from schemas.images.reading import (
    DECODING_BYTES,
    READERS,
    CheckedFile,
    ReadItem,
    batches,
    read_item,
    reject_of,
    undecodable,
)
from schemas.predictions.encoding import predictions
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
        self.meter = worker_metrics.Meter(self.phase)

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
        worker_metrics.tell_begun(self.work.staging)
        progress.enter(self.phase)
        progress.begin(first)
        model = served(self.work.export)
        rejects: list[Reject] = []
        predicted = 0
        try:
            with TURN:
                for batch, answer in self._answers(model, items):
                    rejects += answer.rejects
                    if answer.found is not None:
                        place = answer.found.column("source")[0].as_py(), answer.found.column("offset")[0].as_py()
                        rows = answer.found.num_rows
                        self._writer.write(answer.encoded, answer.found.schema, rows=rows, first=place)
                        predicted += rows
                    progress.add(first, read=len(batch), done=len(batch), rejected=len(answer.rejects))
                    self.meter.add(read=len(batch), done=len(batch), rejected=len(answer.rejects))
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

    def _answers(self, model: Callable[..., Any], items: Sequence[Item]) -> Iterator[tuple[list[ReadItem], _Answer]]:
        read = functools.partial(read_item, images=self.schema.images)
        everything = map_in_order(self._readers, read, items, max_pending=2 * READERS)
        answering = functools.partial(_answer, model=model, schema=self.schema, work=self.work)
        pending = prefetch(batches(everything, self.work.batch_size))
        yield from map_in_order(self._pool, answering, pending, max_pending=self._threads + 1)


@dataclasses.dataclass(frozen=True)
class _Answer:
    """The predictions of a batch, encoded; None where there are none. And its rejects."""

    found: pa.RecordBatch | None
    encoded: Any
    rejects: list[Reject]


def _answer(
    batch: list[ReadItem], *, model: Callable[..., Any], schema: ImageSchema, work: Work
) -> tuple[list[ReadItem], _Answer]:
    rejects = [read.reject for read in batch if read.reject is not None]
    sent = [read for read in batch if read.reject is None]
    if not sent:
        return batch, _Answer(None, None, rejects)
    with _decoding.reserve(sum(read.decoding for read in sent)):
        outputs = model({name: [read.files[name].data for read in sent] for name in sent[0].files})
    errors = outputs["error"]
    refused = np.flatnonzero(errors != b"").tolist()
    rejects += [_refused(sent[place], errors[place]) for place in refused]
    if refused:
        good = np.flatnonzero(errors == b"")
        sent = [sent[place] for place in good.tolist()]
        outputs = {name: values[good] for name, values in outputs.items()}
    if not sent:
        return batch, _Answer(None, None, rejects)
    names = sorted({plain(read.item.source) for read in sent})
    places = [names.index(plain(read.item.source)) for read in sent] if len(names) < len(sent) else None
    if places is None:
        names, places = [plain(read.item.source) for read in sent], list(range(len(sent)))
    passed = {}
    if sent[0].item.names:
        columns = zip(*(map(plain, read.item.names) for read in sent), strict=True)
        passed = {name: pa.array(column, pa.string()) for name, column in zip(schema.image_names, columns, strict=True)}
    found = predictions(
        sources=pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(names, pa.string())),
        offsets=np.array([read.item.place for read in sent], np.int64),
        keys=None,
        passed=passed,
        outputs=outputs,
        classes=work.classes,
    )
    return batch, _Answer(found, work.form.encode(found), rejects)


def _refused(read: ReadItem, error: bytes) -> Reject:
    name = error.decode().partition(": ")[0]
    file = read.files[name]
    bad = undecodable(file.header, file.data, _decoder_error(file))
    return reject_of(read.item, name, file.read.refusal(bad))


def _decoder_error(file: CheckedFile) -> Exception:
    """The error of TensorFlow's decoder for a file that the model rejects, since the model's output has no message."""
    import tensorflow as tf

    decoders: dict[str, Callable[[bytes], Any]] = {
        "jpeg": lambda data: tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
        "png": lambda data: tf.io.decode_png(data, channels=3),
        "gif": tf.io.decode_gif,
        "bmp": tf.io.decode_bmp,
    }
    try:
        decoders[file.header.format](file.data)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        return error
    return ValueError("the model does not accept it")
