"""Runs one job of bulk inference: checks the options, the input and the export, runs the pipeline, and commits."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from beam_jobs.core import progress
from beam_jobs.core.inputs import LISTING, InputFile, StagedInputs, stage_inputs, stage_listing
from beam_jobs.core.source import list_input
from beam_jobs.engines.checks import check_cluster
from beam_jobs.predicting.options import BATCH_IMAGES, BATCH_ROWS, BulkOptions
from beam_jobs.runs.execute import execute
from beam_jobs.runs.run import Kind, NewRun, check_output, load_libraries, new_run
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import write_parts
from schemas.dataset.opening import sha256
from schemas.dataset.prune import remove
from schemas.errors import UsageError
from schemas.exports.model import check_export
from schemas.exports.notes import NOTES_PATH, ExportNotes
from schemas.exports.predicting import ignored_note
from schemas.formats import row_format
from schemas.predictions.manifest import PredictingExport, PredictionsManifest, read_predictions
from schemas.rejects import Reject
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.predicting.predict import PredictionSettings
    from beam_jobs.records.result import Result


SAMPLED = 100  # the number of files that are opened before the job begins; the others are opened on the workers
BUNDLE_HERE, BUNDLE_ELSEWHERE = 10_000, 512  # the images that a worker gets at once: on this machine, on a cluster
RANGE_BYTES = 8 << 20  # the range size of `trainer.predict`, so that both commands make the same batches


def prune(output: str, lease: Lease) -> None:
    """Deletes leftovers from an output folder of predictions.

    The manifest names the current run and the one before it, which readers may still have open. All other runs are
    deleted: runs of killed jobs, and older runs. The staging folders of the two runs that stay are deleted, too.

    Args:
      output: the output folder.
      lease: the lease on the folder.
    """
    names = storage.listdir(output)
    lease.check()
    manifest = read_predictions(output)
    runs = {manifest.run, *manifest.previous}
    staged = [run for run in runs.intersection(names) if layout.STAGING in storage.listdir(layout.join(output, run))]
    remove(output, [name for name in names if layout.RUN.fullmatch(name) and name not in runs], lease)
    remove(output, [layout.join(run, layout.STAGING) for run in staged], lease)


PREDICTIONS = Kind("predictions", read_predictions, prune)


@dataclasses.dataclass(frozen=True)
class Predicted:
    """The outputs of the steps that predict.

    Attributes:
      shards: WrittenShards.
      counts: PCollections of pairs (CountKey, int).
      reject_files: RejectFiles.
    """

    shards: beam.PCollection
    counts: tuple[beam.PCollection, ...]
    reject_files: beam.PCollection


@dataclasses.dataclass(frozen=True)
class CommitPredictions:
    """Commits the predictions of a run. Implements `beam_jobs.runs.run.Committer`.

    Attributes:
      options: the job's options.
      schema: the schema of the model's dataset.
      notes: the notes of the export.
    """

    kind: ClassVar[Kind[PredictionsManifest]] = PREDICTIONS
    options: BulkOptions
    schema: AnySchema
    notes: ExportNotes

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Returns the raw bytes of the rejects. All rejects of this job hold their raw bytes already."""
        return [reject.raw for reject in rejects]

    @functools.cached_property
    def export(self) -> PredictingExport:
        """The export, with the digest of its notes, by which a worker recognizes that the export was replaced."""
        return PredictingExport(
            path=self.options.export,
            sha256=sha256(storage.join(self.options.export, NOTES_PATH)),
            schema_fingerprint=self.notes.schema_fingerprint,
            dataset_run=self.notes.dataset_run,
            global_step=self.notes.global_step,
        )

    @property
    def batch_size(self) -> int:
        """The number of records that the model predicts on at once."""
        return self.options.batch_size or (BATCH_ROWS if isinstance(self.schema, Schema) else BATCH_IMAGES)

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result) -> PredictionsManifest:
        """Checks the counts, gives all files their final names, and replaces the manifest.

        Args:
          run: the run.
          inputs: the inputs that the pipeline has read.
          result: the result of the pipeline.

        Raises:
          Unfit: a record is missing or counted twice, too many records were rejected, or no record was predicted.
          LeaseError: another job has taken the lease; the manifest has not changed.
        """
        from beam_jobs.core.accounting import UNKNOWN, WRITTEN
        from beam_jobs.records.accounts import accounts, input_part
        from beam_jobs.records.result import check_counts
        from beam_jobs.runs import commit

        check_counts(result, inputs, self.options.reject_limit)
        unknown = {name: rows for (_, stage, name), rows in result.observed.items() if stage == UNKNOWN}
        names = "predictions-{:05d}-of-{:05d}." + self.options.format
        shards = commit.place_shards(run, result.shards, names.format)
        commit.place_rejects(run.folder, result, ())
        parts = map(input_part, accounts(inputs, result.count_files))
        listed = write_parts(run.output, run.id, parts, count=inputs.files)
        replaced = commit.replaced(run.output, read_predictions)
        manifest = PredictionsManifest(
            **commit.entries(run, result, listed),
            name=self.schema.name,
            export=self.export,
            classes=self.notes.classes,
            format=self.options.format,
            pass_through=self.options.pass_through,
            batch_size=self.batch_size,
            shards=shards,
            files=tuple(commit.list_files(run.output, run.id, except_for={shard.path for shard in shards})),
            predicted=result.total(WRITTEN),
            unknown=unknown,
            previous=() if replaced is None else (replaced.run,),
        )
        commit.publish(run, manifest)
        return manifest


@dataclasses.dataclass(frozen=True)
class BulkPrediction(CommitPredictions, abc.ABC):
    """A job that predicts on records and writes shards of predictions. A subclass defines the records: rows or images.

    Implements `beam_jobs.runs.run.PipelineJob`, and is its own source.
    """

    @property
    @abc.abstractmethod
    def total(self) -> int:
        """The amount of input, in the unit of the progress: bytes for rows, images for images."""

    @abc.abstractmethod
    def stage(self, folder: str) -> StagedInputs:
        """Writes the list of inputs to a folder. Records are counted by these inputs."""

    @abc.abstractmethod
    def predict(self, pipeline: beam.Pipeline, inputs: StagedInputs, settings: PredictionSettings) -> Predicted:
        """Adds the steps that read the records and predict on them."""

    @property
    def source(self) -> BulkPrediction:
        """The source of the job: the job itself, which can list and stage its input."""
        return self

    def committer(self, inputs: StagedInputs) -> CommitPredictions:
        """Returns the committer of the run, which is sent to a worker, and so has no listing of the input."""
        return CommitPredictions(self.options, self.schema, self.notes)

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], beam.PCollection]:
        """Returns a function that adds the job's steps to a pipeline. `temp_dir`: not used."""
        from beam_jobs.predicting.predict import PredictionSettings
        from beam_jobs.records.result import write_at_end

        settings = PredictionSettings(
            export=self.export,
            classes=self.notes.classes,
            staging=run.staging,
            limit=self.options.reject_limit,
            total=self.total,
            format=self.options.format,
            shard_bytes=self.options.shard_size_mb * 2**20,
            batch_size=self.batch_size,
            pass_through=self.options.pass_through,
        )
        progress.JOB.expect("predicting")

        def build(pipeline: beam.Pipeline) -> beam.PCollection:
            predicted = self.predict(pipeline, inputs, settings)
            return write_at_end(
                pipeline,
                run.staging,
                inputs,
                predicted.counts,
                shards=predicted.shards,
                reject_files=predicted.reject_files,
            )

        return build


@dataclasses.dataclass(frozen=True)
class PredictOnRows(BulkPrediction):
    """A job that predicts on files of rows."""

    schema: Schema
    listing: storage.Listing

    @property
    def total(self) -> int:
        return self.listing.bytes

    def stage(self, folder: str) -> StagedInputs:
        return stage_listing(folder, self.listing)

    def predict(self, pipeline: beam.Pipeline, inputs: StagedInputs, settings: PredictionSettings) -> Predicted:
        import apache_beam as beam

        from beam_jobs.core.accounting import COUNTS, REJECTS
        from beam_jobs.predicting.predict import PredictRows
        from beam_jobs.rows.ranges import FileRanges

        group, ratio = int(self.options.piece_mb * 2**20), self.options.max_input_ratio
        ranges = FileRanges(inputs, self.schema, min(group, RANGE_BYTES), ratio, label="optional", group_bytes=group)
        groups, counts = ranges.create(pipeline, "Predict", count=True)
        done = groups | "Predict" >> beam.ParDo(PredictRows(self.schema, settings)).with_outputs(
            COUNTS, REJECTS, main="shards"
        )
        return Predicted(done.shards, (counts, done[COUNTS]), done[REJECTS])


@dataclasses.dataclass(frozen=True)
class PredictOnImages(BulkPrediction):
    """A job that predicts on images or on pairs of images. All of them are counted as one input, the listing."""

    schema: ImageSchema
    paths: tuple[str, ...]
    count: int

    @property
    def total(self) -> int:
        return self.count

    def stage(self, folder: str) -> StagedInputs:
        version = hashlib.sha256("\n".join(map(repr, self.paths)).encode()).hexdigest()
        name = " ".join(self.options.input)
        return stage_inputs(folder, [InputFile(LISTING, name, 0, version, covers=self.count)], count=1)

    def predict(self, pipeline: beam.Pipeline, inputs: StagedInputs, settings: PredictionSettings) -> Predicted:
        import apache_beam as beam

        from beam_jobs.core.accounting import COUNTS, REJECTS
        from beam_jobs.images.pipeline import spread
        from beam_jobs.predicting.predict import PredictImages, stage_items
        from schemas.images.listing import list_items

        items = list_items(self.schema, self.paths, self.options.root).items
        bundle = BUNDLE_HERE if self.options.is_local else BUNDLE_ELSEWHERE
        staged = stage_items(settings.staging, items, bundle=bundle)
        done = spread(pipeline, staged.parts, staged.read) | "Predict" >> beam.ParDo(
            PredictImages(self.schema, settings)
        ).with_outputs(COUNTS, REJECTS, main="shards")
        return Predicted(done.shards, (done[COUNTS],), done[REJECTS])


def prepare(
    options: BulkOptions, schema: AnySchema, notes: ExportNotes, report: Callable[[Sequence[str]], None]
) -> BulkPrediction:
    """Lists the input, and returns the job. For rows, also opens a sample of the files to check them.

    Args:
      options: the job's options.
      schema: the schema of the model's dataset.
      notes: the notes of the export.
      report: called with notes about the input.

    Raises:
      UsageError: there is no such file; or a file does not fit the schema, or lacks a column of --pass_through.
    """
    if isinstance(schema, Schema):
        return PredictOnRows(options, schema, notes, _list_rows(options, schema, report))
    if options.pass_through:
        raise UsageError(f"--pass_through: {schema.records} have no columns; only rows of CSV files have")
    from schemas.images.listing import list_items

    paths = tuple(storage.expand(options.input))
    count = sum(1 for _ in list_items(schema, paths, options.root).items)
    return PredictOnImages(options, schema, notes, paths, count)


def _list_rows(options: BulkOptions, schema: Schema, report: Callable[[Sequence[str]], None]) -> storage.Listing:
    """Lists files of rows, and opens SAMPLED of them. Raises UsageError if one of these does not fit the schema."""
    if options.root is not None:
        raise UsageError("--root: is for CSV files of image pairs; this model predicts on rows")
    listing, _ = list_input(options.input, report)
    listing.check_names()
    form, ratio = row_format(schema), options.max_input_ratio
    # The listing is in the order of a hash, so its beginning is a random sample.
    files = []
    for path in sorted(file.path for file in itertools.islice(listing, SAMPLED)):
        file = form.open_file(path, schema, label="optional", max_input_ratio=ratio)
        if not file.labels:  # a file without records
            continue
        for name in options.pass_through:
            form.cell_position(file, schema, name)
        files.append(file)
    report(ignored_note(files))
    return listing


def run_job(
    options: BulkOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes
) -> PredictionsManifest:
    """Runs a job of bulk inference to its end, and returns the manifest of the committed predictions.

    Args:
      options: the job's options.
      report: called with notes about the input.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: the job failed; nothing was committed, and the rejects are kept under `failed/`.
    """
    check_cluster(options, paths_of(options))
    check(options)
    schema, notes = check_export(options.export, trust=options.trust)
    job = prepare(options, schema, notes, report)
    with new_run(options.output, break_lease=options.break_lease) as run:
        check(options)  # again: another job may have committed before this one got the lease
        load_libraries(verbose=options.verbose, quiet=options.quiet)
        return execute(job, run)


def paths_of(options: BulkOptions) -> dict[str, tuple[str, ...]]:
    """Returns the paths that a job's workers read or write, by the option that names them."""
    names = ("model_dir", "saved_model", "output", "root")
    paths = {f"--{name}": (path,) for name in names if (path := getattr(options, name))}
    return {**paths, "--input": options.input}


def check(options: BulkOptions) -> None:
    """Checks that the job may write to the output folder, and that no input pattern matches a file of the output.

    Raises:
      UsageError: the output folder holds something else or may not be replaced, or an input pattern matches a file
        that the job would write.
    """
    check_output(options.output, PREDICTIONS.noun, overwrite=options.overwrite)
    run = layout.new_run_id()
    written = (layout.MANIFEST, *(f"{run}/{name}" for name in (f"predictions-0.{options.format}", "rejects-0.jsonl")))
    storage.check_apart(options.input, options.output, inside=written)
