"""Runs one preprocessing job: checks the options and the input, takes the lease, runs the pipeline and commits."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence

from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import JobInput, JobSource, list_input
from beam_jobs.engines.checks import check_can_leave, check_cluster, read_or_written
from beam_jobs.runs.execute import execute, submit
from beam_jobs.runs.run import DATASET, NewRun, OtherTransform, check_output, load_libraries, new_run, open_source
from beam_jobs.runs.write import PreprocessingFn, WriteDataset, started_children
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.holders import RemoteHolder
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.errors import MillraceError, UsageError, counted
from schemas.spec import shipped
from schemas.spec.loader import AnySchema, load_schema


def check_inputs(options: JobOptions, report: Callable[[Sequence[str]], None] = storage.print_notes) -> JobSource:
    """Reads the schema, and lists or opens the input. Does not import TensorFlow or Beam.

    Args:
      options: the job's options.
      report: called with notes about the input.

    Raises:
      UsageError: the schema, the input or the output is invalid.
    """
    options, schema = check_options(options, report)
    listing, duplicates = list_input(options.input, report)
    return open_source(schema, JobInput(options, storage.read_bytes(options.schema), listing, duplicates, report))


def check_options(
    options: JobOptions, report: Callable[[Sequence[str]], None] = storage.print_notes
) -> tuple[JobOptions, AnySchema]:
    """Reads the schema, and checks the options and the output, but not the input.

    Reports how many corrected records --overwrite would lose.

    Returns:
      The options, where the name of a shipped schema is replaced by the schema's path, and the schema.

    Raises:
      UsageError: the schema or the output is invalid.
    """
    options = dataclasses.replace(options, schema=shipped.find(options.schema))
    schema = load_schema(options.schema)
    check_cluster(options, read_or_written(options, schema))
    check_output(options.output, DATASET.noun, overwrite=options.overwrite)
    storage.check_apart(options.input, options.output, inside=layout.EXAMPLES)
    check_comparison(options, schema)
    report(list(lost_corrections(options.output)))
    return options, schema


def lost_corrections(output: str) -> Iterator[str]:
    """Yields a warning if the dataset in `output` holds corrected records, which --overwrite would lose.

    Corrected records came from `--replay`, so the input files do not contain them.
    """
    if not storage.exists(layout.join(output, layout.MANIFEST)):
        return
    with contextlib.suppress(MillraceError):  # a manifest of another format version is not read, and not warned of
        manifest = read_manifest(output)
        if manifest.replayed:
            yield (
                f"warning: --overwrite: {output} holds {counted(manifest.replayed, 'corrected records')}, added by "
                "--replay and in no input file. The new dataset rejects them again, unless the input was corrected. "
                f"Afterwards, replay your corrections again: millrace preprocess --replay "
                f"CORRECTED --append_to {output}"
            )


def check_comparison(options: JobOptions, schema: AnySchema) -> None:
    """Checks that everything that drift is computed from is available.

    Raises:
      UsageError: --no_statistics is given although the schema sets thresholds of drift or --compare_to is given; or
        the dataset of --compare_to does not exist or has no statistics.
    """
    if not options.statistics and schema.limits_drift:
        raise UsageError(
            f"--no_statistics: {options.schema} sets thresholds of drift, which need statistics; leave out either"
        )
    if options.compare_to is None:
        return
    if not options.statistics:
        raise UsageError("--compare_to compares statistics; leave out --no_statistics")
    from schemas.comparison import stored_samples
    from schemas.dataset import read_checked

    try:
        stored_samples(options.compare_to, read_checked(options.compare_to))
    except MillraceError as error:
        raise UsageError(f"--compare_to {error}") from error


def run_job(
    options: JobOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes, configure: bool = True
) -> Manifest:
    """Runs a preprocessing job to its end, and returns the manifest of the committed dataset.

    Args:
      options: the job's options.
      report: called with notes about the input.
      configure: configure TensorFlow for this job; False if the process also does other work.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: the job failed; nothing was committed, and the rejects are kept under `failed/`.
    """
    if options.no_wait:
        raise UsageError(
            "no_wait: a job that is not waited for has no dataset yet; use `millrace preprocess --no_wait`"
        )
    with _prepared(options, report, configure=configure) as (job, run):
        return execute(job, run)


def submit_job(options: JobOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes) -> RemoteHolder:
    """Submits a job to a cluster, where it commits by itself. Returns the job as the holder of the output's lease.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: the job could not be submitted.
    """
    check_can_leave(options)
    with _prepared(options, report, configure=True) as (job, run):
        return submit(job, run)


@contextlib.contextmanager
def _prepared(
    options: JobOptions, report: Callable[[Sequence[str]], None], *, configure: bool
) -> Iterator[tuple[WriteDataset, NewRun]]:
    """Checks the options and the input, takes the lease, and yields the job and the run that it writes.

    The lease is held while the block runs.
    """
    if options.dry_run:
        raise UsageError("dry_run: nothing would be written; use `millrace preprocess --dry_run`")
    source = check_inputs(options, report)
    transform = open_transform(options, source)
    with new_run(options.output, break_lease=options.break_lease) as run:
        # Again: another job may have committed before this one got the lease.
        check_output(options.output, DATASET.noun, overwrite=options.overwrite)
        with started_children(options, source, run) as children:
            load_libraries(verbose=options.verbose, configure=configure, quiet=options.quiet)
            function = load_preprocessing(options.preprocessing_fn)
            yield WriteDataset(options, source, transform, function, children=children), run


def open_transform(options: JobOptions, source: JobSource) -> OtherTransform | None:
    """Opens the transform of the dataset that --transform_from names; returns None without that option.

    Raises:
      UsageError: the folder holds no dataset, or the dataset's transform cannot be applied to this data.
    """
    if options.transform_from is None:
        return None
    from schemas.dataset import open_dataset

    try:
        other = open_dataset(options.transform_from, trust=options.trust)
        transform = OtherTransform.of(other)
    except MillraceError as error:
        raise UsageError(f"--transform_from {error}") from error
    problem = source.incompatibility(other)
    if problem is not None:
        raise UsageError(
            f"--transform_from {options.transform_from}: {problem}; its transform cannot be used with "
            f"{options.schema}. Its own schema is {layout.join(other.run_dir, layout.SCHEMA_YAML)}."
        )
    return transform


def load_preprocessing(reference: str | None) -> PreprocessingFn | None:
    """Imports the user's preprocessing_fn.

    Args:
      reference: the module and the function, as `module:function`; None: return None.

    Raises:
      UsageError: the function cannot be imported.
    """
    if reference is None:
        return None
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--preprocessing_fn {reference}: {error}") from error
