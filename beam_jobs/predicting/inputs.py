"""The input of bulk inference: rows or images, listed, opened and checked against the export's schema."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from beam_jobs.core.inputs import LISTING, InputFile, StagedInputs, stage_inputs, stage_listing
from beam_jobs.core.source import Staged
from beam_jobs.predicting.options import BATCH_IMAGES, BATCH_ROWS, BulkOptions
from schemas import storage
from schemas.errors import UsageError
from schemas.formats import row_format
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.predicting.work import Work

SAMPLED = 100  # files that are opened before the job begins; the others are opened on the workers
BUNDLE_HERE, BUNDLE_ELSEWHERE = 10_000, 512  # images that a worker is given at once, on this machine or a cluster
RANGE_BYTES = 8 << 20  # as `trainer.predict` reads them, so that the batches are the same


class Inputs(Staged, Protocol):
    """What is predicted on."""

    @property
    def batch_size(self) -> int:
        """The records of a batch if the options do not say it."""

    @property
    def pass_through(self) -> tuple[str, ...]:
        """The columns that predictions carry."""

    def predict(self, pipeline: beam.Pipeline, inputs: StagedInputs, work: Work) -> Predicted:
        """Applies the steps that read and predict."""


@dataclasses.dataclass(frozen=True)
class Predicted:
    """The PCollections that prediction ends in: of WrittenShard, of (CountKey, int), and of RejectFile."""

    shards: beam.PCollection
    counts: tuple[beam.PCollection, ...]
    reject_files: beam.PCollection


@dataclasses.dataclass(frozen=True)
class RowInputs:
    """Files of rows. Implements `Inputs`."""

    schema: Schema
    listing: storage.Listing
    options: BulkOptions
    batch_size: int = BATCH_ROWS

    @property
    def total(self) -> int:
        return self.listing.bytes

    @property
    def pass_through(self) -> tuple[str, ...]:
        return self.options.pass_through

    def stage(self, folder: str) -> StagedInputs:
        return stage_listing(folder, self.listing)

    def predict(self, pipeline: beam.Pipeline, inputs: StagedInputs, work: Work) -> Predicted:
        import apache_beam as beam

        from beam_jobs.core.accounting import COUNTS, REJECTS
        from beam_jobs.predicting.predict import PredictRows
        from beam_jobs.rows.ranges import FileRanges

        group = int(self.options.piece_mb * 2**20)
        ranges = FileRanges(
            inputs,
            self.schema,
            min(group, RANGE_BYTES),
            self.options.max_input_ratio,
            label="optional",
            group_bytes=group,
        )
        groups, counts = ranges.create(pipeline, "Predict", count=True)
        done = groups | "Predict" >> beam.ParDo(PredictRows(self.schema, work)).with_outputs(
            COUNTS, REJECTS, main="shards"
        )
        return Predicted(done.shards, (counts, done[COUNTS]), done[REJECTS])


@dataclasses.dataclass(frozen=True)
class ImageInputs:
    """Images, or pairs of them, which are counted as one listing. Implements `Inputs`."""

    schema: ImageSchema
    paths: tuple[str, ...]
    options: BulkOptions
    count: int
    batch_size: int = BATCH_IMAGES
    pass_through: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.count

    def stage(self, folder: str) -> StagedInputs:
        version = hashlib.sha256("\n".join(map(repr, self.paths)).encode()).hexdigest()
        return stage_inputs(
            folder, [InputFile(LISTING, " ".join(self.options.input), 0, version, covers=self.count)], count=1
        )

    def predict(self, pipeline: beam.Pipeline, inputs: StagedInputs, work: Work) -> Predicted:
        import apache_beam as beam

        from beam_jobs.core.accounting import COUNTS, REJECTS
        from beam_jobs.images.image_lists import spread
        from beam_jobs.predicting.predict import PredictImages, stage_items
        from schemas.images.items import list_items

        items = list_items(self.schema, self.paths, self.options.root).items
        bundle = BUNDLE_HERE if self.options.is_local else BUNDLE_ELSEWHERE
        staged = stage_items(work.staging, items, bundle=bundle)
        done = spread(pipeline, staged.parts, staged.read) | "Predict" >> beam.ParDo(
            PredictImages(self.schema, work)
        ).with_outputs(COUNTS, REJECTS, main="shards")
        return Predicted(done.shards, (done[COUNTS],), done[REJECTS])


def open_inputs(
    options: BulkOptions, schema: AnySchema, report: Callable[[Sequence[str]], None] = storage.print_notes
) -> Inputs:
    """Lists the input, and opens a sample of it.

    Raises:
      UsageError: there is no such file; a file does not fit the schema, or lacks a column that is passed through.
    """
    if isinstance(schema, Schema):
        return _rows(options, schema, report)
    if options.pass_through:
        raise UsageError(f"--pass_through: {schema.records} have no columns; only rows of CSV files have")
    from schemas.images.items import list_items

    paths = tuple(storage.expand(options.input))
    count = sum(1 for _ in list_items(schema, paths, options.root).items)
    return ImageInputs(schema, paths, options, count)


def _rows(options: BulkOptions, schema: Schema, report: Callable[[Sequence[str]], None]) -> RowInputs:
    if options.root is not None:
        raise UsageError("--root: is for CSV files of image pairs; this model predicts on rows")
    duplicates: list[tuple[str, str]] = []
    listing = storage.list_files(options.input, on_duplicate=lambda *paths: duplicates.append(paths))
    listing.check_names()
    report([storage.duplicate_note(kept, path) for kept, path in duplicates])
    form, ratio = row_format(schema), options.max_input_ratio
    # The listing is in the order of a hash, so its beginning is a random sample.
    for path in sorted(file.path for file in itertools.islice(listing, SAMPLED)):
        file = form.open_file(path, schema, label="optional", max_input_ratio=ratio)
        if not file.labels:  # without a record
            continue
        for name in options.pass_through:
            form.cell_position(file, schema, name)
    return RowInputs(schema, listing, options)
