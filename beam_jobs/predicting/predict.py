"""Rows and images -> shards of predictions: every record is counted, and every reject stored."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core import progress, workers
from beam_jobs.core.accounting import (
    COUNTS,
    COVERED,
    UNKNOWN,
    WRITTEN,
    count,
    counted,
    give_up_if_certain,
    write_rejects,
)
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.options import RejectLimit
from beam_jobs.core.workers import TURN
from beam_jobs.predicting.shards import FORMATS, PREDICTED, Format, ShardWriter
from beam_jobs.rows.groups import Group, InGroup, joined
from beam_jobs.rows.read import ReadRanges, Tally
from schemas import storage
from schemas.concurrency import ByteBudget, map_in_order, prefetch, usable_cores
from schemas.dataset import layout
from schemas.dataset.opening import sha256
from schemas.errors import MillraceError
from schemas.exports.model import ServedModel, on_local_disk
from schemas.exports.notes import NOTES_PATH, check_files, read_notes
from schemas.exports.predicting import PredictedRows, RowPredictor, predict_images, with_raw_bytes
from schemas.exports.words import KnownValues
from schemas.formats import row_format
from schemas.images.listing import ImageItem, plain
from schemas.images.reading import DECODING_BYTES, READERS, ReadItem, batches, read_item
from schemas.predictions.encoding import OFFSET, SOURCE, predictions
from schemas.predictions.manifest import FormatName, PredictingExport
from schemas.rejects import Reject
from schemas.spec.forms import CellError
from schemas.spec.images import ImageSchema
from schemas.spec.table import Schema
from schemas.storage import file_key
from schemas.storage.json_files import parse_json


@dataclasses.dataclass(frozen=True)
class LoadedExport:
    """A model, and the values that it knows; None for images."""

    model: ServedModel
    known_values: KnownValues | None


def load(export: PredictingExport) -> LoadedExport:
    """Loads a model.

    Raises:
      MillraceError: the export has changed since the launcher checked it, or cannot be read.
    """
    with on_local_disk(export.path) as folder:
        schema, notes = read_notes(folder)
        if sha256(storage.join(folder, NOTES_PATH)) != export.sha256:
            raise MillraceError(f"{export.path}: was replaced by another export while the job ran; start again")
        check_files(folder, notes)  # what is loaded is what was checked
        known_values = KnownValues(folder, schema) if isinstance(schema, Schema) else None
        return LoadedExport(ServedModel(folder, checked=True, in_callers_thread=True), known_values)


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """What a worker needs to predict, beside the input."""

    export: PredictingExport
    classes: tuple[str, ...]
    staging: str
    limit: RejectLimit
    total: int
    format: FormatName
    shard_bytes: float
    batch_size: int
    pass_through: tuple[str, ...] = ()
    shared: Shared = dataclasses.field(default_factory=Shared)

    def loaded(self) -> LoadedExport:
        """Returns the model, which the workers of a process load once for a job, and share."""
        loaded: LoadedExport = self.shared.acquire(functools.partial(load, self.export))
        return loaded

    @property
    def form(self) -> Format:
        """How shards are written."""
        return FORMATS[self.format](self.classes)

    def writer(self) -> ShardWriter:
        """Returns what writes the shards of one bundle."""
        return ShardWriter(self.staging, self.form, suffix=self.format, shard_bytes=self.shard_bytes)


class Predict(beam.DoFn):
    """Some of the input -> nothing; at the bundle's end, the shards that were written.

    Side outputs: (CountKey, records) in COUNTS, RejectFile in REJECTS.
    """

    phase = "predicting"
    settings: PredictionSettings

    def setup(self) -> None:
        self._threads = usable_cores()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="predict")
        self._writer = self.settings.writer()

    def teardown(self) -> None:
        self._writer.drop()
        self._pool.shutdown(cancel_futures=True)

    def start_bundle(self) -> None:
        self._writer.drop()  # what an attempt that failed has left

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._writer.close())


class PredictRows(Predict, ReadRanges):
    """Predicts on groups of ranges."""

    def __init__(self, schema: Schema, settings: PredictionSettings) -> None:
        super().__init__(schema, settings.staging, settings.limit, settings.total)
        self.settings = settings

    def read(self, group: Group, path: str | None) -> Iterator[InGroup]:
        form = row_format(self.schema)
        for place, part in enumerate(group):
            for decoded in form.read_range(part, self.schema, with_split=False, cells=self.settings.pass_through):
                yield place, decoded

    def process(self, group: Group) -> Iterator[beam.pvalue.TaggedOutput]:
        settings, form, loaded = self.settings, self.settings.form, self.settings.loaded()
        predict = RowPredictor(
            loaded.model,
            self.schema,
            settings.classes,
            pass_through=settings.pass_through,
            known_values=loaded.known_values,
        )
        files = [part.file for part in group]

        def answer(batch: pa.RecordBatch, places: np.ndarray) -> tuple[PredictedRows, Any]:
            answered = predict(batch, files, places)
            return answered, None if answered.predictions is None else form.encode(answered.predictions)

        tally, predicted = Tally(group), np.zeros(len(group), np.int64)
        piece = group[0].file.path, group[0].start
        batches = self.batches(tally.counting(self.decode(group)), group)
        late: list[tuple[int, Reject]] = []
        answers = map_in_order(self._pool, lambda rows: answer(*rows), batches, max_pending=2 * self._threads)
        unknown: Counter[str] = Counter()
        for (output_batch, places, refused, new), encoded in answers:
            unknown.update(new)
            if output_batch is not None:
                first = files[int(places[0])].path, output_batch.column(OFFSET)[0].as_py()
                self._writer.write(encoded, output_batch.schema, rows=output_batch.num_rows, first=first)
                predicted += np.bincount(places, minlength=len(group))
            if refused:
                late += refused
                progress.JOB.add(piece, rejected=len(refused))
                self.meter.add(rejected=len(refused))
        rejects = with_raw_bytes([reject for _, reject in late], files, self.schema)
        for place, reject in zip((place for place, _ in late), rejects, strict=True):
            tally.rejects[place].append(reject)
        yield from tally.counted()
        for part, rows in zip(group, predicted.tolist(), strict=True):
            yield count(file_key(part.file.path), WRITTEN, PREDICTED, rows)
        for name, rows in unknown.items():
            yield beam.pvalue.TaggedOutput(COUNTS, (("", UNKNOWN, name), rows))
        yield from self.reject_outputs
        yield from write_rejects(self.staging, rejects, phase=self.phase)

    def batches(self, decoded: Iterator[InGroup], group: Group) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yields the rows in batches for the model, with the place of each row's file in the group.

        Those of one file are cut as they are read, and small files are joined.
        """
        one_file = len({part.file.path for part in group}) == 1
        for batch, places in _each(decoded) if one_file else joined(decoded, group):
            for start in range(0, batch.num_rows, self.settings.batch_size):
                span = slice(start, start + self.settings.batch_size)
                yield batch.slice(start, self.settings.batch_size), places[span]


def _each(decoded: Iterator[InGroup]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    for place, piece in decoded:
        if piece.batch.num_rows:
            yield piece.batch, np.full(piece.batch.num_rows, place, np.int32)


ITEMS_A_FILE = 10_000
_decoding = ByteBudget(DECODING_BYTES)  # of all batches that this process decodes


@dataclasses.dataclass(frozen=True)
class StagedItems:
    """Where the items are staged. This is all that the pipeline holds of them."""

    folder: str
    parts: int
    bundle: int  # items that a worker is given at once

    def read(self, part: int) -> Iterator[tuple[int, tuple[ImageItem, ...]]]:
        """Reads the items of a part, in bundles with their numbers."""
        lines = storage.read_bytes(_items_path(self.folder, part)).splitlines()
        for start in range(0, len(lines), self.bundle):
            yield (
                part * ITEMS_A_FILE + start,
                tuple(_item(parse_json(line)) for line in lines[start : start + self.bundle]),
            )


def stage_items(folder: str, items: Iterable[ImageItem], *, bundle: int) -> StagedItems:
    """Writes items to files, of which few are in memory at once."""
    lines: list[bytes] = []
    parts = 0
    for item in items:
        problem = None if item.problem is None else dataclasses.astuple(item.problem)
        raw = item.raw.decode("latin-1")
        lines.append(json.dumps([item.source, item.place, dict(item.files), item.names, problem, raw]).encode() + b"\n")
        if len(lines) == ITEMS_A_FILE:
            storage.write_bytes(_items_path(folder, parts), b"".join(lines))
            parts, lines = parts + 1, []
    if lines:
        storage.write_bytes(_items_path(folder, parts), b"".join(lines))
        parts += 1
    return StagedItems(folder, parts, bundle)


def _items_path(folder: str, part: int) -> str:
    return layout.join(folder, f"items-{part:05d}.jsonl")


def _item(fields: list[Any]) -> ImageItem:
    source, place, files, names, problem, raw = fields
    return ImageItem(source, place, files, tuple(names), problem and CellError(*problem), raw.encode("latin-1"))


class PredictImages(Predict):
    """Predicts on bundles of items."""

    def __init__(self, schema: ImageSchema, settings: PredictionSettings) -> None:
        self.schema, self.settings = schema, settings
        self.meter = workers.Meter(self.phase)

    def setup(self) -> None:
        super().setup()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    def teardown(self) -> None:
        super().teardown()
        self._readers.shutdown(cancel_futures=True)

    def process(self, bundle: tuple[int, Sequence[ImageItem]]) -> Iterator[beam.pvalue.TaggedOutput]:
        first, items = bundle
        workers.report_begun(self.settings.staging)
        model = self.settings.loaded().model
        progress.JOB.enter(self.phase)
        progress.JOB.begin(first)
        rejects: list[Reject] = []
        predicted = 0
        try:
            with TURN:
                for read, output_batch, refused, encoded in self._answers(model, items):
                    rejects += refused
                    if output_batch is not None:
                        place = output_batch.column(SOURCE)[0].as_py(), output_batch.column(OFFSET)[0].as_py()
                        self._writer.write(encoded, output_batch.schema, rows=output_batch.num_rows, first=place)
                        predicted += output_batch.num_rows
                    progress.JOB.add(first, read=read, done=read, rejected=len(refused))
                    self.meter.add(read=read, done=read, rejected=len(refused))
                    give_up_if_certain(self.settings.limit, self.settings.total)
        finally:
            reject_outputs = list(write_rejects(self.settings.staging, rejects, phase=self.phase))
        yield from counted(LISTING, read=len(items), rejects=rejects)
        yield count(LISTING, WRITTEN, PREDICTED, predicted)
        yield count(LISTING, COVERED, "", len(items))
        yield from reject_outputs

    def _answers(self, model: ServedModel, items: Sequence[ImageItem]) -> Iterator[_Answer]:
        read = functools.partial(read_item, images=self.schema.images)
        everything = map_in_order(self._readers, read, items, max_pending=2 * READERS)
        answer = functools.partial(_answer, model=model, schema=self.schema, settings=self.settings)
        pending = prefetch(batches(everything, self.settings.batch_size))
        yield from map_in_order(self._pool, answer, pending, max_pending=self._threads + 1)


class _Answer(NamedTuple):
    """How many items a batch has; their predictions, None where there are none; its rejects; and what to write."""

    read: int
    output_batch: pa.RecordBatch | None
    rejects: Sequence[Reject]
    encoded: Any


def _answer(batch: list[ReadItem], *, model: ServedModel, schema: ImageSchema, settings: PredictionSettings) -> _Answer:
    with _decoding.reserve(sum(read.decoding for read in batch)):
        predicted = predict_images(batch, model)
    rejects, items = list(predicted.rejects.values()), [read.item for read in predicted.answered]
    if not items:
        return _Answer(len(batch), None, rejects, None)
    columns = zip(*(map(plain, item.names) for item in items), strict=True)
    output_batch = predictions(
        sources=pa.array([plain(item.source) for item in items], pa.string()).dictionary_encode(),
        offsets=np.array([item.place for item in items], np.int64),
        keys=None,
        passed={n: pa.array(c, pa.string()) for n, c in zip(schema.image_names, columns, strict=False)},
        outputs=predicted.outputs,
        classes=settings.classes,
    )
    return _Answer(len(batch), output_batch, rejects, settings.form.encode(output_batch))
