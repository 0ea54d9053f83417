"""One job of bulk inference, from options to committed predictions: check, run the pipeline, commit, clean up."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from beam_jobs.core import progress
from beam_jobs.engines.checks import check_cluster
from beam_jobs.predicting.inputs import Inputs, open_inputs
from beam_jobs.predicting.options import BulkOptions
from beam_jobs.runs.run import Kind, NewRun, execute, load_libraries, new_run
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.input_files import write_parts
from schemas.dataset.lease import Lease
from schemas.dataset.opening import sha256
from schemas.dataset.prune import foreign, remove
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import NOTES_PATH, Notes, check_files, read_notes
from schemas.predictions.manifest import Export, Predictions, read_predictions
from schemas.spec.loader import AnySchema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.accounting import RejectLimit
    from beam_jobs.core.inputs import StagedInputs
    from beam_jobs.records.result import Result


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
