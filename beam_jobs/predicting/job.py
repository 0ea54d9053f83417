"""One job of bulk inference, from options to committed predictions: check, run the pipeline, commit, clean up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from beam_jobs.core import progress
from beam_jobs.engines.checks import check_cluster
from beam_jobs.predicting.inputs import Inputs, open_inputs
from beam_jobs.predicting.options import BulkOptions
from beam_jobs.runs.run import NewRun, load_libraries, new_run
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease
from schemas.dataset.prune import foreign, remove
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import Notes, check_files, read_notes
from schemas.predictions.manifest import Export, Predictions, read_predictions
from schemas.spec.loader import AnySchema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.inputs import StagedInputs
    from beam_jobs.predicting.work import ExportRef, Work


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
        return run.write(
            lambda: _run(options, schema, notes, inputs, run),
            total=inputs.total,
            quiet=options.quiet,
            raw_bytes=lambda rejects: [reject.raw for reject in rejects],  # which all have theirs
            read=read_predictions,
            clear=clear,
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


def _run(options: BulkOptions, schema: AnySchema, notes: Notes, inputs: Inputs, run: NewRun) -> Predictions:
    from beam_jobs.core.accounting import RejectLimit
    from beam_jobs.engines import runner
    from beam_jobs.predicting import commit
    from beam_jobs.predicting.work import ExportRef, Work, notes_digest

    begun = time.monotonic()
    folders.make(run.staging)
    staged = inputs.stage(run.staging)
    export = ExportRef(options.saved_model, notes_digest(options.saved_model))
    work = Work(
        export=export,
        classes=notes.classes,
        staging=run.staging,
        limit=RejectLimit(options.max_rejects, options.max_reject_fraction),
        total=inputs.total,
        format=options.format,
        shard_bytes=options.shard_size_mb * 2**20,
        batch_size=options.batch_size or inputs.batch_size,
        pass_through=inputs.pass_through,
    )
    progress.expect("predicting")
    build = _builder(inputs, staged, work)
    runner.run(options, build, staging=run.staging, total=inputs.total)
    progress.enter("committing")
    result = commit.read_result(layout.join(run.staging, commit.RESULT))
    finished = commit.Run(
        **vars(run),
        suffix=options.format,
        inputs=staged,
        limit=work.limit,
        about=_about(options, schema, notes, export, work),
    )
    commit.check(finished, result)
    return commit.commit(finished, result, seconds=time.monotonic() - begun)


def _about(options: BulkOptions, schema: AnySchema, notes: Notes, export: ExportRef, work: Work) -> dict[str, object]:
    return {
        "name": schema.name,
        "export": Export(
            path=export.path,
            sha256=export.sha256,
            schema_fingerprint=notes.schema_fingerprint,
            dataset_run=notes.dataset_run,
            global_step=notes.global_step,
        ),
        "classes": notes.classes,
        "format": options.format,
        "pass_through": work.pass_through,
        "batch_size": work.batch_size,
    }


def _builder(inputs: Inputs, staged: StagedInputs, work: Work) -> Callable[[beam.Pipeline], None]:
    def build(pipeline: beam.Pipeline) -> None:
        import apache_beam as beam

        from beam_jobs.predicting.commit import RESULT, write_result
        from beam_jobs.records.accounts import WriteCounts

        found = inputs.predict(pipeline, staged, work)
        counts = found.counts | "AllCounts" >> beam.Flatten() | "Counts" >> WriteCounts(staged, work.staging)
        parts = {"shards": found.shards, "count_files": counts, "reject_files": found.reject_files}
        _ = (
            pipeline
            | "Finally" >> beam.Create([layout.join(work.staging, RESULT)])
            | "WriteResult" >> beam.Map(write_result, **{n: beam.pvalue.AsList(part) for n, part in parts.items()})
        )

    return build


def clear(output: str, held: Lease) -> None:
    """Removes what killed jobs left, and runs that were replaced twice. Failure is only a warning."""
    try:
        names = storage.listdir(output)
        held.check()
        manifest = read_predictions(output)
        kept = {manifest.run, *manifest.previous}
        remove(output, [name for name in names if layout.RUN.fullmatch(name) and name not in kept], held)
    except (MillraceError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        print(
            f"{output}: the predictions are written, but leftovers of earlier jobs could not be removed: {why}",
            file=sys.stderr,
        )
