"""One preprocessing job, from options to a committed dataset: plan, run the pipeline, check, commit."""

from __future__ import annotations

import dataclasses
import importlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core import parity_sample, progress
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.runtime.new_run import NewRun, load_libraries, new_run, temporary_folder
from beam_jobs.runtime.sources import open_source
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.dataset.prune import foreign
from schemas.errors import MillraceError, UsageError
from schemas.spec import shipped
from schemas.spec.loader import load_schema
from schemas.spec.table import SPLITS
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.shuffle_plan import ShardOptions


def run_job(
    options: JobOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes, configure: bool = True
) -> Manifest:
    """Runs the job to its end.

    Args:
      options: the job's options.
      report: called with notes about the input.
      configure: configure TensorFlow for this job; False where the process also does other work.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed; nothing was committed, and the rejects are kept under `failed/`.
    """
    source = check_inputs(options, report)
    transform = open_transform(options, source)
    with new_run(options.output) as run:
        check_output(options)  # again: before the lease was ours, another job may have committed
        if configure:
            load_libraries(verbose=options.verbose)
        preprocessing_fn = load_preprocessing(options, source)
        return run.write(
            lambda: _run(options, source, preprocessing_fn, run, transform=transform),
            total=source.total,
            quiet=options.quiet,
            raw_bytes=source.raw_bytes,
        )


def check_inputs(options: JobOptions, report: Callable[[Sequence[str]], None] = storage.print_notes) -> Source:
    """Reads the schema and lists or opens the input. Imports nothing heavy.

    Raises:
      UsageError: the schema, the input or the output is not as it must be.
    """
    options = dataclasses.replace(options, schema=shipped.find(options.schema))
    schema = load_schema(options.schema, for_job=True)
    check_output(options)

    duplicates: list[tuple[str, str]] = []
    paths = storage.expand(options.input, on_duplicates=duplicates.extend)
    report([storage.duplicate_note(kept, path) for kept, path in duplicates])
    return open_source(schema, RawFiles(options, storage.read_bytes(options.schema), paths, duplicates, report))


def check_output(options: JobOptions) -> None:
    """Refuses an output folder that holds a dataset, unless it is to be replaced, or that holds something else."""
    names = storage.listdir(options.output)
    if storage.is_local(options.output) and os.path.lexists(options.output):
        if not os.path.isdir(options.output):
            raise UsageError(f"--output {options.output}: is not a folder; use a folder or a new name")
        storage.check_output(layout.join(options.output, layout.MANIFEST))
    if layout.MANIFEST in names and not options.overwrite:
        raise UsageError(
            f"--output {options.output}: already contains a dataset. Give --overwrite to replace it "
            "once the new one is complete, or use another folder."
        )
    others = foreign(options.output)
    if others and layout.MANIFEST not in names:
        raise UsageError(
            f"--output {options.output}: holds {others[0]!r}, which is not part of a dataset. Use an empty or a new "
            "folder."
        )


@dataclasses.dataclass(frozen=True)
class OtherTransform:
    """The transform of another dataset's run."""

    run_dir: str
    run: str
    preprocessing_fn: str | None


def open_transform(options: JobOptions, source: Source) -> OtherTransform | None:
    """The transform that --transform_from names, if it is given.

    Raises:
      UsageError: there is no dataset, or its transform does not fit this data.
    """
    if options.transform_from is None:
        return None
    from schemas.dataset import open_dataset

    try:
        other = open_dataset(options.transform_from, trust=options.trust)
        graphs_dir = other.graphs_dir
    except MillraceError as error:
        raise UsageError(f"--transform_from: {error}") from error
    problem = source.incompatibility(other)
    if problem is not None:
        raise UsageError(
            f"--transform_from {options.transform_from}: {problem}; its transform cannot be used with "
            f"{options.schema}. Its own schema is {layout.join(other.run_dir, layout.SCHEMA_YAML)}."
        )
    return OtherTransform(graphs_dir, other.run, other.manifest.preprocessing_fn)


def load_preprocessing(options: JobOptions, source: Source) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The schema's own preprocessing_fn, or the user's.

    Raises:
      UsageError: the user's cannot be imported.
    """
    if options.preprocessing_fn is None:
        return source.preprocessing_fn()
    module, _, name = options.preprocessing_fn.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--preprocessing_fn {options.preprocessing_fn}: {error}") from error


def _run(
    options: JobOptions,
    source: Source,
    preprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]],
    run: NewRun,
    *,
    transform: OtherTransform | None,
) -> Manifest:
    from beam_jobs.core.accounting import RejectLimit
    from beam_jobs.core.steps import Plan
    from beam_jobs.output import commit, pipeline_end, result
    from beam_jobs.runtime import runner

    begun = time.monotonic()
    staging = run.staging
    folders.make(staging)
    source.write_description(run.folder, transform_from=transform.run_dir if transform else None)
    limit = RejectLimit(options.max_rejects, options.max_reject_fraction)
    with temporary_folder(options, staging) as temp_dir:
        plan = Plan(
            run_dir=run.folder,
            temp_dir=temp_dir,
            total=source.total,
            limit=limit,
            parity_threshold=parity_sample.threshold(source.estimated_rows),
            shards=plan_shards(options, source, staging),
            preprocessing_fn=preprocessing_fn,
            derived=(transform or options).preprocessing_fn is None,
            transform_from=transform.run_dir if transform else None,
            cache_dir=temp_dir if options.is_local else None,
        )

        def build(p: beam.Pipeline) -> None:
            pipeline_end.finish(p, plan, source.steps(p, plan))

        runner.run(options, build)
    progress.enter("committing")
    account = result.read_result(layout.join(staging, result.RESULT))
    finished = commit.Run(
        output=options.output,
        id=run.id,
        staging=staging,
        source=source,
        limit=limit,
        compression=options.compression,
        seed=options.seed,
        transform_from=transform.run if transform else None,
        preprocessing_fn=(transform or options).preprocessing_fn,
        lease=run.lease,
        replaces=run.replaces,
    )
    commit.check(finished, account)
    return commit.commit(finished, result.complete(account, staging, source.raw_bytes), begun=begun)


def plan_shards(options: JobOptions, source: Source, staging: str) -> ShardOptions:
    """How rows are distributed over shards, given what is known before the data is read."""
    from beam_jobs.core.shuffle_plan import ShardOptions, plan_shuffle, shards_of

    shares = source.shares()
    shard_bytes = options.shard_size_mb * 2**20
    through_files = options.is_local and storage.is_local(options.output)
    wanted = options.num_shards
    if wanted is None and not through_files:  # a cluster's shuffle has to know the number in advance
        wanted = max(4, round(source.estimated_bytes * shares["train"] / shard_bytes))
    plan = plan_shuffle(
        shares,
        estimated_bytes=source.estimated_bytes,
        num_shards=wanted,
        shard_bytes=shard_bytes,
        seed=options.seed,
        one_bucket_each=not through_files,
    )
    counts = tuple(
        None if wanted is None or name not in shares else shards_of(name, shares[name] / shares["train"], wanted)
        for name in SPLITS
    )
    return ShardOptions(plan, counts, shard_bytes, options.compression, staging, through_files)
