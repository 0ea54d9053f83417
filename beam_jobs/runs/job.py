"""One preprocessing job, from options to a committed dataset: check, plan, run the pipeline, commit."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core import parity, progress
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.engines.checks import can_leave, check_can_leave, check_cluster, read_or_written
from beam_jobs.runs.run import DATASET, NewRun, execute, load_libraries, new_run, open_source, temporary_folder
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.holders import Submitted
from schemas.dataset.manifest import Manifest
from schemas.dataset.prune import foreign
from schemas.errors import MillraceError, UsageError
from schemas.predictions.manifest import is_predictions
from schemas.rejects import Reject
from schemas.spec import shipped
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import SPLITS, Schema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.inputs import Analysis, Kept, StagedInputs
    from beam_jobs.core.shuffle_plan import ShardOptions
    from beam_jobs.core.source import KnownIds
    from beam_jobs.records.result import Result
    from beam_jobs.runs.submit import Begun


def check_inputs(options: JobOptions, report: Callable[[Sequence[str]], None] = storage.print_notes) -> Source:
    """Reads the schema and lists or opens the input. Imports nothing heavy.

    Raises:
      UsageError: the schema, the input or the output is invalid.
    """
    options = dataclasses.replace(options, schema=shipped.find(options.schema))
    schema = load_schema(options.schema, for_job=True)
    check_cluster(options, read_or_written(options, schema))
    check_output(options)
    storage.check_apart(options.input, options.output, inside=layout.EXAMPLES)
    check_comparison(options, schema)
    check_keeping(options, schema)

    duplicates: list[tuple[str, str]] = []
    listing = storage.list_files(options.input, on_duplicate=lambda *paths: duplicates.append(paths))
    report([storage.duplicate_note(kept, path) for kept, path in duplicates])
    return open_source(schema, RawFiles(options, storage.read_bytes(options.schema), listing, duplicates, report))


def check_output(options: JobOptions) -> None:
    """Refuses an output folder that contains other files, or a dataset, unless --overwrite is given."""
    names = storage.listdir(options.output)
    if storage.is_local(options.output) and os.path.lexists(options.output):
        if not os.path.isdir(options.output):
            raise UsageError(f"--output {options.output}: is not a folder; use a folder or a new name")
        storage.check_output(layout.join(options.output, layout.MANIFEST))
    if layout.MANIFEST in names and is_predictions(options.output):
        raise UsageError(f"--output {options.output}: holds predictions, and no dataset; use another folder")
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


def check_comparison(options: JobOptions, schema: AnySchema) -> None:
    """Refuses thresholds of drift without statistics, and a dataset to compare with that has none.

    Raises:
      UsageError: as above, or there is no such dataset.
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
        raise UsageError(f"--compare_to: {error}") from error


def check_keeping(options: JobOptions, schema: AnySchema) -> None:
    """Refuses to keep an analysis where there is none that could be kept.

    Raises:
      UsageError: the transform is given, the user's own function measures it, or these are images.
    """
    why = None
    if options.transform_from is not None:
        why = "with --transform_from nothing is measured"
    elif options.preprocessing_fn is not None:
        why = "what a --preprocessing_fn of your own measures cannot be kept"
    elif not isinstance(schema, Schema):
        why = "images are measured while they are read, once, and not in an analysis of its own"
    if options.keep_analysis and why is not None:
        raise UsageError(f"--keep_analysis: {why}; leave it out")


def run_job(
    options: JobOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes, configure: bool = True
) -> Manifest:
    """Runs a job, up to the commit.

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
    with _prepared(options, report, configure=configure) as (work, run):
        total, raw_bytes = work.source.total, work.source.raw_bytes
        if not can_leave(options):
            return run.write(
                lambda: execute(work, run), total=total, quiet=options.quiet, raw_bytes=raw_bytes, kind=DATASET
            )
        from beam_jobs.runs import submit

        return submit.launch(options, run, lambda: _submit(work, run), total=total)


def submit_job(options: JobOptions, *, report: Callable[[Sequence[str]], None] = storage.print_notes) -> Submitted:
    """Submits a job to a cluster. `beam_jobs.runs.reattach` takes it up.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: the job could not be submitted.
    """
    check_can_leave(options)
    with _prepared(options, report, configure=True) as (work, run):
        return _submit(work, run).submitted


@contextlib.contextmanager
def _prepared(
    options: JobOptions, report: Callable[[Sequence[str]], None], *, configure: bool
) -> Iterator[tuple[WriteDataset, NewRun]]:
    """The work, its input checked, and the run that it writes, whose lease is held."""
    source = check_inputs(options, report)
    transform = open_transform(options, source)
    with new_run(options.output) as run:
        check_output(options)  # again: another job may have committed before this one got the lease
        load_libraries(verbose=options.verbose, configure=configure, quiet=options.quiet)
        preprocessing_fn = load_preprocessing(options, source)
        yield WriteDataset(options, source, preprocessing_fn, transform, keeps_analysis=options.keep_analysis), run


@dataclasses.dataclass(frozen=True)
class OtherTransform:
    """The transform of another dataset's run."""

    run_dir: str
    run: str
    preprocessing_fn: str | None


def open_transform(options: JobOptions, source: Source) -> OtherTransform | None:
    """The transform that --transform_from names, if it is given.

    Raises:
      UsageError: there is no dataset, or its transform cannot be applied to this data.
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


def load_preprocessing(
    options: JobOptions, source: Source, *, asked: str = "--preprocessing_fn"
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The schema's own preprocessing_fn, or the user's; `asked` is what names that, for messages.

    Raises:
      UsageError: the user's cannot be imported.
    """
    if options.preprocessing_fn is None:
        return source.preprocessing_fn()
    module, _, name = options.preprocessing_fn.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{asked} {options.preprocessing_fn}: {error}") from error


def transform_of(base: Dataset) -> OtherTransform:
    """The transform that a dataset's records went through."""
    return OtherTransform(base.graphs_dir, base.run, base.manifest.preprocessing_fn)


@dataclasses.dataclass(frozen=True)
class WriteDataset:
    """Implements `beam_jobs.runs.run.Work`: raw data through a transform, to a dataset or to one that is there."""

    options: JobOptions
    source: Source
    preprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]]
    transform: OtherTransform | None
    onto: Dataset | None = None  # the dataset that the records are added to
    tried: Sequence[Reject] = ()  # its rejects, of which the records are corrections; none: they are new input
    allow_drift: bool = False  # no threshold fails it
    keeps_analysis: bool = False  # what is measured of these records is kept
    known: tuple[Kept, ...] = ()  # what earlier runs have kept, whose records are not analyzed again
    known_reads: Mapping[str, int] = dataclasses.field(default_factory=dict)  # how many records each of them read
    to_analyze: Source | None = None  # the records that are; None: all of `source`

    @property
    def transform_from(self) -> str | None:
        """The run whose transform is applied."""
        return self.transform.run if self.transform else None

    @property
    def own_function(self) -> str | None:
        """The user's preprocessing_fn, if the transform is not derived from the schema."""
        return (self.transform or self.options).preprocessing_fn

    def analysis(self, run: NewRun, inputs: StagedInputs) -> Analysis | None:
        """What is kept of the analysis; None if nothing is."""
        from beam_jobs.core.inputs import STAGED, Analysis, Keeping

        if not self.keeps_analysis:
            return None
        if self.to_analyze is not None:
            inputs = self.to_analyze.stage(layout.join(run.staging, "to_analyze"))
        folder = layout.join(run.staging, STAGED)
        return Analysis(Keeping(run.id, folder, self.source.schema.fingerprint, self.known), inputs)

    def known_ids(self) -> Mapping[str, KnownIds]:
        """Of features whose unknown values are counted: all, where the transform is that of the dataset before."""
        from beam_jobs.transform.vocabularies import known_ids

        if (
            self.onto is None
            or self.tried
            or self.own_function is not None
            or not isinstance(self.onto.declared, Schema)
        ):
            return {}
        return known_ids(self.onto.schema, self.onto.run_dir)

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], None]:
        """Builds the pipeline. Writes the description of the raw data to the run's folder."""
        from beam_jobs.core.accounting import RejectLimit
        from beam_jobs.core.source import Plan
        from beam_jobs.records import result
        from beam_jobs.records.existing import copy_files

        if self.onto is not None:
            copy_files(self.onto, run.folder)

        options, source = self.options, self.source
        transform_from = self.transform.run_dir if self.transform else None
        source.write_description(run.folder, transform_from=transform_from)
        analysis, preprocessing_fn = self.analysis(run, inputs), self.preprocessing_fn
        if analysis is not None:
            preprocessing_fn = source.preprocessing_fn(analysis.keeping)
        plan = Plan(
            run_dir=run.folder,
            temp_dir=temp_dir,
            inputs=inputs,
            total=source.total,
            limit=RejectLimit(options.max_rejects, options.max_reject_fraction),
            parity_threshold=None if self.onto else parity.threshold(source.estimated_rows),
            shards=plan_shards(options, source, run.staging, temp_dir),
            preprocessing_fn=preprocessing_fn,
            derived=self.own_function is None,
            transform_from=transform_from,
            statistics=options.statistics,
            known_ids=self.known_ids(),
            analysis=analysis,
            leakage=options.leakage,
            cache_dir=temp_dir if options.is_local else None,
        )
        return lambda p: result.finish(p, plan, source.steps(p, plan))

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result, seconds: Callable[[], float]) -> Manifest:
        """See `beam_jobs.runs.commit.commit`."""
        from beam_jobs.core.accounting import RejectLimit
        from beam_jobs.runs import commit

        options = self.options
        finished = commit.Run(
            **vars(run),
            source=self.source,
            inputs=inputs,
            limit=RejectLimit(options.max_rejects, options.max_reject_fraction),
            compression=options.compression,
            seed=options.seed,
            transform_from=self.transform_from,
            preprocessing_fn=self.own_function,
            onto=self.onto,
            tried=self.tried,
            known=self.known_reads,
        )
        return commit.commit(
            finished,
            result,
            raw_bytes=self.source.raw_bytes,
            seconds=seconds,
            phases=progress.phases() if options.is_local else (),
            compare_to=options.compare_to,
            allow_drift=self.allow_drift,
        )


def _submit(work: WriteDataset, run: NewRun) -> Begun:
    from beam_jobs.runs import submit

    with run.cleaned_up(work.source.raw_bytes), temporary_folder(work.options, run.staging) as temp_dir:
        folders.make(run.staging)
        inputs = work.source.stage(run.staging)
        return submit.submit(
            work.options,
            work.source,
            inputs,
            run,
            work.pipeline(run, inputs, temp_dir),
            transform_from=work.transform_from,
            preprocessing_fn=work.own_function,
        )


def plan_shards(options: JobOptions, source: Source, staging: str, temp_dir: str) -> ShardOptions:
    """How rows are distributed over shards, given what is known before the data is read."""
    from beam_jobs.core.shuffle_plan import ShardOptions, plan_shuffle, shards_of

    shares = source.shares()
    shard_bytes = options.shard_size_mb * 2**20
    wanted = options.num_shards
    if wanted is None and not options.is_local:  # a cluster's shuffle has to know about how many there will be
        wanted = max(4, round(source.estimated_bytes * shares["train"] / shard_bytes))
    plan = plan_shuffle(
        shares,
        estimated_bytes=source.estimated_bytes,
        num_shards=wanted,
        shard_bytes=shard_bytes,
        seed=options.seed,
        one_bucket_each=not options.is_local,
    )
    counts = tuple(
        None
        if options.num_shards is None or name not in shares
        else shards_of(name, shares[name] / shares["train"], options.num_shards)
        for name in SPLITS
    )
    return ShardOptions(
        plan,
        counts,
        shard_bytes,
        options.compression,
        staging,
        fragments=temp_dir if options.is_local else None,
        spills=staging if options.shuffles_in_memory else None,
    )
