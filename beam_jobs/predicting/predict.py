"""The steps of bulk inference: read rows or images, predict on them, and write shards of predictions and rejects.

Every record is counted, either as predicted or as rejected.
"""

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
    """A loaded model.

    Attributes:
      model: the model.
      known_values: the values in the vocabularies of the model, to count unknown values; None for images.
    """

    model: ServedModel
    known_values: KnownValues | None


def load(export: PredictingExport) -> LoadedExport:
    """Loads the model of an export.

    Raises:
      MillraceError: the export has changed since the launcher checked it, or cannot be read.
    """
    with on_local_disk(export.path) as folder:
        schema, notes = read_notes(folder)
        if sha256(storage.join(folder, NOTES_PATH)) != export.sha256:
            raise MillraceError(f"{export.path}: was replaced by another export while the job ran; start again")
        check_files(folder, notes)  # the files must be those that the launcher has checked
        known_values = KnownValues(folder, schema) if isinstance(schema, Schema) else None
        return LoadedExport(ServedModel(folder, checked=True, in_callers_thread=True), known_values)


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """The settings of a job that every worker needs.

    Attributes:
      export: the export with the model.
      classes: the names of the classes by id; empty for a regression.
      staging: the run's staging folder, for shards and rejects.
      limit: how many records may be rejected.
      total: the amount of input, in the unit of the progress.
      format: the format of the shards.
      shard_bytes: the size at which a shard ends and the next one begins.
      batch_size: the number of records that the model predicts on at once.
      pass_through: the columns of rows that are copied to the predictions.
      shared: holds the loaded model, which all threads of a worker process share.
    """

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
        """Returns the model. The threads of a worker process load it only once for a job, and share it."""
        loaded: LoadedExport = self.shared.acquire(functools.partial(load, self.export))
        return loaded

    @property
    def form(self) -> Format:
        """The format of the shards, as the object that encodes batches."""
        return FORMATS[self.format](self.classes)

    def writer(self) -> ShardWriter:
        """Returns a writer for the shards of one bundle."""
        return ShardWriter(self.staging, self.form, suffix=self.format, shard_bytes=self.shard_bytes)


class Predict(beam.DoFn):
    """Predicts on elements of the input. Yields the WrittenShards at the end of each bundle.

    Side outputs: COUNTS has pairs (CountKey, number of records), REJECTS has RejectFiles.
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
        self._writer.drop()  # the shards of a bundle that has failed before

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._writer.close())


class PredictRows(Predict, ReadRanges):
    """Predicts on rows. An element is a group: some ranges of files, which are read together."""

    def __init__(self, schema: Schema, settings: PredictionSettings) -> None:
        super().__init__(schema, settings.staging, settings.limit, settings.total)
        self.settings = settings

    def read(self, group: Group, path: str | None) -> Iterator[InGroup]:
        form = row_format(self.schema)
        for place, part in enumerate(group):
            for decoded in form.read_range(part, self.schema, with_split=False, cells=self.settings.pass_through):
                yield place, decoded

    def process(self, group: Group) -> Iterator[beam.pvalue.TaggedOutput]:
        """Predicts on the rows of a group, writes the predictions, and yields the counts and the rejects.

        One thread reads the rows; several threads predict and encode batches; the answers are written in order.
        """
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

        # `tally` counts the rows and the rejects of reading, `predicted` the predictions, both by range of the group.
        # `late` are the rejects of the model, each with the index of its range.
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
        # Rejects of the model have no raw bytes yet; these are read from the files again.
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
        """Yields the rows in batches of at most `batch_size` for the model.

        If all ranges of the group are of one file, its batches are cut as they were read. Rows of several files, which
        are small then, are joined to larger batches.

        Args:
          decoded: the decoded batches, each with the index of its range in the group.
          group: the ranges.

        Yields:
          A batch, and for each of its rows the index of the row's range in the group, integers `[rows]`.
        """
        one_file = len({part.file.path for part in group}) == 1
        for batch, places in _each(decoded) if one_file else joined(decoded, group):
            for start in range(0, batch.num_rows, self.settings.batch_size):
                span = slice(start, start + self.settings.batch_size)
                yield batch.slice(start, self.settings.batch_size), places[span]


def _each(decoded: Iterator[InGroup]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yields batches as they were read, and for each row the index of its range in the group."""
    for place, piece in decoded:
        if piece.batch.num_rows:
            yield piece.batch, np.full(piece.batch.num_rows, place, np.int32)


ITEMS_A_FILE = 10_000  # the number of items in a staged file
_decoding = ByteBudget(DECODING_BYTES)  # shared by all batches that this process decodes


@dataclasses.dataclass(frozen=True)
class StagedItems:
    """The place of the staged items. The pipeline holds only this, and not the items, which may be very many.

    Attributes:
      folder: the folder of the staged files.
      parts: the number of files.
      bundle: the number of items that a worker gets at once.
    """

    folder: str
    parts: int
    bundle: int

    def read(self, part: int) -> Iterator[tuple[int, tuple[ImageItem, ...]]]:
        """Reads file number `part`, and yields its items in bundles, each with the number of its first item."""
        lines = storage.read_bytes(_items_path(self.folder, part)).splitlines()
        for start in range(0, len(lines), self.bundle):
            yield (
                part * ITEMS_A_FILE + start,
                tuple(_item(parse_json(line)) for line in lines[start : start + self.bundle]),
            )


def stage_items(folder: str, items: Iterable[ImageItem], *, bundle: int) -> StagedItems:
    """Writes items (images or pairs of images) to files. Holds at most ITEMS_A_FILE items in memory.

    Args:
      folder: the folder for the files.
      items: the items.
      bundle: the number of items that a worker gets at once.
    """
    lines: list[bytes] = []
    parts = 0
    for item in items:
        problem = None if item.problem is None else dataclasses.astuple(item.problem)
        raw = item.raw.decode("latin-1")  # maps each byte to one character, so that JSON can hold any bytes
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
    """The item of a line that `stage_items` has written."""
    source, place, files, names, problem, raw = fields
    return ImageItem(source, place, files, tuple(names), problem and CellError(*problem), raw.encode("latin-1"))


class PredictImages(Predict):
    """Predicts on images or pairs of images. An element is a bundle of items."""

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
        """Predicts on the items of a bundle, writes the predictions, and yields the counts and the rejects."""
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
        finally:  # the rejects are kept under `failed/` even if this bundle fails
            reject_outputs = list(write_rejects(self.settings.staging, rejects, phase=self.phase))
        yield from counted(LISTING, read=len(items), rejects=rejects)
        yield count(LISTING, WRITTEN, PREDICTED, predicted)
        yield count(LISTING, COVERED, "", len(items))
        yield from reject_outputs

    def _answers(self, model: ServedModel, items: Sequence[ImageItem]) -> Iterator[_Answer]:
        """Reads the items in some threads and predicts in others, batch by batch. Yields the answers in order."""
        read = functools.partial(read_item, images=self.schema.images)
        everything = map_in_order(self._readers, read, items, max_pending=2 * READERS)
        answer = functools.partial(_answer, model=model, schema=self.schema, settings=self.settings)
        pending = prefetch(batches(everything, self.settings.batch_size))
        yield from map_in_order(self._pool, answer, pending, max_pending=self._threads + 1)


class _Answer(NamedTuple):
    """The result of predicting on a batch of items."""

    read: int  # the number of items
    output_batch: pa.RecordBatch | None  # the predictions; None if all items were rejected
    rejects: Sequence[Reject]
    encoded: Any  # the predictions in the format of the shards; None if all items were rejected


def _answer(batch: list[ReadItem], *, model: ServedModel, schema: ImageSchema, settings: PredictionSettings) -> _Answer:
    """Decodes a batch of items, predicts on them, and encodes the predictions."""
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
