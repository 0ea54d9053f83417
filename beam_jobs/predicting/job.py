"""One job of bulk inference, from options to committed predictions: its input, its export, its pipeline, its commit."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from beam_jobs.core import progress
from beam_jobs.core.inputs import LISTING, InputFile, StagedInputs, stage_inputs, stage_listing
from beam_jobs.core.source import Staged
from beam_jobs.engines.checks import check_cluster
from beam_jobs.predicting.options import BATCH_IMAGES, BATCH_ROWS, BulkOptions
from beam_jobs.runs.run import Kind, NewRun, execute, load_libraries, new_run
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import write_parts
from schemas.dataset.opening import sha256
from schemas.dataset.prune import foreign, remove
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import NOTES_PATH, Notes, check_files, read_notes
from schemas.formats import row_format
from schemas.predictions.manifest import Export, Predictions, read_predictions
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.accounting import RejectLimit
    from beam_jobs.predicting.work import Work
    from beam_jobs.records.result import Result


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
        from schemas.images.listing import list_items

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
    from schemas.images.listing import list_items

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


def run_job(options: BulkOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes) -> Predictions:
    """Runs a job, up to the commit.

    Args:
      options: the job's options.
      report: called with notes about the input.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: the job failed; nothing was committed, and the rejects are kept under `failed/`.
    """
    check_cluster(options, paths_of(options))
    check_output(options)
    schema, notes = check_export(options)
    inputs = open_inputs(options, schema, report)
    with new_run(options.output) as run:
        check_output(options)  # again: another job may have committed before this one got the lease
        load_libraries(verbose=options.verbose, quiet=options.quiet)
        work = BulkPrediction(options, schema, notes, inputs)
        return run.write(
            lambda: execute(work, run),
            total=inputs.total,
            quiet=options.quiet,
            raw_bytes=lambda rejects: [reject.raw for reject in rejects],  # which all have theirs
            kind=PREDICTIONS,
        )


def paths_of(options: BulkOptions) -> dict[str, tuple[str, ...]]:
    """By option, the paths that a job's workers read or write."""
    found = {"--saved_model": (options.saved_model,), "--input": options.input, "--output": (options.output,)}
    return found | ({"--root": (options.root,)} if options.root else {})


def check_output(options: BulkOptions) -> None:
    """Refuses an output that holds other files, a dataset, or predictions without --overwrite.

    Raises:
      UsageError: the output cannot be written.
    """
    output = options.output
    names = storage.listdir(output)
    if storage.is_local(output) and os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output {output}: is not a folder; use a folder or a new name")
    run = layout.new_run_id()
    written = (layout.MANIFEST, *(f"{run}/{name}" for name in (f"predictions-0.{options.format}", "rejects-0.jsonl")))
    storage.check_apart(options.input, output, inside=written)
    others = foreign(output)
    if layout.MANIFEST not in names:
        if others:
            raise UsageError(
                f"--output {output}: holds {others[0]!r}, which is not part of predictions. Use an empty or a "
                "new folder."
            )
        return
    try:
        read_predictions(output)
    except MillraceError as error:
        raise UsageError(f"--output {output}: holds something else than predictions: {error}") from error
    if not options.overwrite:
        raise UsageError(
            f"--output {output}: already contains predictions. Give --overwrite to replace them once the new ones are "
            "complete, or use another folder."
        )


def check_export(options: BulkOptions) -> tuple[AnySchema, Notes]:
    """Checks an export before anything of it is loaded: its notes, its files, the ops of its graph.

    Raises:
      UsageError: the folder is no export, or one of an earlier release.
      MillraceError: its files have changed, or its graph can do more than compute.
    """
    from schemas.graphs.check import check_graph

    schema, notes = read_notes(options.saved_model)
    if notes.advice is not None:
        raise UsageError(f"--saved_model {options.saved_model}: {notes.advice}; or use trainer.predict")
    check_files(options.saved_model, notes)
    if not options.trust:
        check_graph(options.saved_model)
    return schema, notes


@dataclasses.dataclass(frozen=True)
class BulkPrediction:
    """Implements `beam_jobs.runs.run.Work`: records through an export, to shards of predictions."""

    options: BulkOptions
    schema: AnySchema
    notes: Notes
    source: Inputs

    @functools.cached_property
    def export(self) -> Export:
        """The export, as it was checked."""
        return Export(
            path=self.options.saved_model,
            sha256=sha256(storage.join(self.options.saved_model, NOTES_PATH)),
            schema_fingerprint=self.notes.schema_fingerprint,
            dataset_run=self.notes.dataset_run,
            global_step=self.notes.global_step,
        )

    @property
    def limit(self) -> RejectLimit:
        """How many rejects it stands."""
        from beam_jobs.core.accounting import RejectLimit

        return RejectLimit(self.options.max_rejects, self.options.max_reject_fraction)

    @property
    def batch_size(self) -> int:
        """How many records the model is given at once."""
        return self.options.batch_size or self.source.batch_size

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], None]:
        """Builds the pipeline."""
        from beam_jobs.predicting.work import Work
        from beam_jobs.records.result import write_at_end

        work = Work(
            export=self.export,
            classes=self.notes.classes,
            staging=run.staging,
            limit=self.limit,
            total=self.source.total,
            format=self.options.format,
            shard_bytes=self.options.shard_size_mb * 2**20,
            batch_size=self.batch_size,
            pass_through=self.source.pass_through,
        )
        progress.expect("predicting")

        def build(pipeline: beam.Pipeline) -> None:
            found = self.source.predict(pipeline, inputs, work)
            write_at_end(
                pipeline, run.staging, inputs, found.counts, shards=found.shards, reject_files=found.reject_files
            )

        return build

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result, seconds: Callable[[], float]) -> Predictions:
        """Checks the counts, gives all files their final names, and swaps the manifest.

        Raises:
          Unfit: a record is unaccounted for, too many were rejected, or there is none.
          LeaseError: another job has taken the lease; the manifest has not changed.
        """
        from beam_jobs.core.accounting import WRITTEN
        from beam_jobs.records.accounts import accounts, input_part
        from beam_jobs.records.result import check_counts
        from beam_jobs.runs import commit

        check_counts(result, inputs, self.limit)
        names = "predictions-{:05d}-of-{:05d}." + self.options.format
        shards = commit.place_shards(run, result.shards, names.format)
        commit.place_rejects(run.folder, result, ())
        parts = map(input_part, accounts(inputs, result.count_files))
        listed = write_parts(run.output, run.id, parts, count=inputs.files)
        replaced = commit.replaced(run.output, read_predictions)
        folders.remove(run.staging)
        manifest = Predictions(
            **commit.entries(run, result, listed, seconds()),
            name=self.schema.name,
            export=self.export,
            classes=self.notes.classes,
            format=self.options.format,
            pass_through=self.source.pass_through,
            batch_size=self.batch_size,
            shards=shards,
            files=tuple(commit.list_files(run.output, run.id, except_for={shard.path for shard in shards})),
            predicted=result.total(WRITTEN),
            previous=() if replaced is None else (replaced.run,),
        )
        commit.publish(run, manifest)
        return manifest


def prune(output: str, held: Lease) -> None:
    """Removes what killed jobs left, and runs that were replaced twice."""
    names = storage.listdir(output)
    held.check()
    manifest = read_predictions(output)
    kept = {manifest.run, *manifest.previous}
    remove(output, [name for name in names if layout.RUN.fullmatch(name) and name not in kept], held)


PREDICTIONS = Kind("predictions are", read_predictions, prune)
