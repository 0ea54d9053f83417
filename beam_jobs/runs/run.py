"""A run that a job writes: its lease, its execution here, and the cleanup afterwards; and the table of sources."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from beam_jobs.core import progress
from beam_jobs.core.options import JobOptions, RunnerOptions
from beam_jobs.core.progress import CountersDisplay
from beam_jobs.core.source import Described, JobInput, JobSource, Rereadable, Staged
from beam_jobs.engines.jobs import has_ended
from beam_jobs.images.source import open_images
from beam_jobs.rows.source import open_rows
from schemas import interrupts, retries, storage
from schemas.dataset import OpenDataset, layout, lease
from schemas.dataset.lease import Lease, LeaseError
from schemas.dataset.manifest import read_manifest
from schemas.dataset.prune import foreign, prune
from schemas.errors import MillraceError, UsageError
from schemas.libraries import quick_import, starting_tensorflow
from schemas.rejects import Reject, read_rejects
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.json_files import read_if_there
from schemas.storage.local import refused_by_disk

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.inputs import StagedInputs
    from beam_jobs.records.result import Result
    from beam_jobs.transform.rejects import RawBytes

M = TypeVar("M")  # a manifest
M_co = TypeVar("M_co", covariant=True)


@dataclasses.dataclass(frozen=True)
class Kind(Generic[M_co]):
    """What a run writes: a dataset or predictions.

    Attributes:
      noun: what it is called: "a dataset" or "predictions".
      read: reads the manifest of an output folder.
      prune: removes leftovers of killed jobs, and replaced runs that no reader can still have open.
    """

    noun: str
    read: Callable[[str], M_co]
    prune: Callable[[str, Lease], object]

    def clear(self, output: str, run_lease: Lease) -> None:
        """Prunes. Failure is only a warning: what was written is complete without this."""
        try:
            self.prune(output, run_lease)
        except (MillraceError, KeyboardInterrupt) as error:
            why = str(error) or "interrupted"
            print(
                f"{output}: the new run is committed, but leftovers of earlier jobs could not be removed: {why}",
                file=sys.stderr,
            )


DATASET = Kind("a dataset", read_manifest, prune)


def check_output(output: str, noun: str, *, overwrite: bool) -> None:
    """Checks that a job may write to a folder.

    Args:
      output: the folder.
      noun: what is to be written, see `Kind`.
      overwrite: replace what is there of that kind.

    Raises:
      UsageError: it is no folder, is in a dataset or a model directory, or holds something else.
    """
    layout.check_outside(output, "--output ", layout.MANIFEST, layout.MODEL_JSON)
    if storage.is_local(output) and os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output {output}: is not a folder; use a folder or a new name")
    manifest = layout.join(output, layout.MANIFEST)
    storage.check_output(manifest)
    if not storage.exists(manifest):
        for name in foreign(output)[:1]:
            raise UsageError(
                f"--output {output}: holds {name!r}, which is not part of {noun}. Use an empty or a new folder."
            )
        return
    content = layout.described_by(manifest)
    if content not in ("", noun):
        raise UsageError(f"--output {output}: holds {content}, and not {noun}; use another folder")
    if not overwrite:
        raise UsageError(
            f"--output {output}: already contains {noun}. Give --overwrite to replace what is there once the new "
            "run is complete, or use another folder."
        )


def keep_failed(output: str, run_id: str, error: BaseException, raw_bytes: RawBytes, *, always: bool = False) -> str:
    """Saves a failed run's rejects under `failed/`, and last a summary, unless another process has done so.

    Args:
      output: the dataset's folder.
      run_id: the run.
      error: why it failed.
      raw_bytes: reads the raw bytes of rejects from the input.
      always: write the summary even if there are no rejects.

    Returns:
      The part of the error message about the rejects: how many by reason, and where they are; '' if there are none.
    """
    folder, staging = layout.join(output, layout.FAILED, run_id), layout.join(output, run_id, layout.STAGING)
    reasons: collections.Counter[str] = collections.Counter()
    places: set[tuple[str, int]] = set()  # a record is rejected by both passes, and again by a retried bundle
    first: Reject | None = None
    lost = 0
    for i, (rejects, has_raw) in enumerate(_rejects_in(staging, raw_bytes)):
        new = [reject for reject in rejects if (reject.source, reject.offset) not in places]
        places.update((reject.source, reject.offset) for reject in new)
        reasons.update(reject.reason for reject in new)
        first = first or next(iter(new), None)
        lost += 0 if has_raw else len(new)
        if new:
            lines = "".join(f"{reject.to_json()}\n" for reject in new)
            folders.create(layout.join(folder, layout.rejects_name(i)), lines.encode())
    reject_note = "" if first is None else _about_rejects(folder, first, reasons, error, lost=lost)
    if first is not None or always:
        message = str(error) or type(error).__name__
        committed: str | None = None
        with contextlib.suppress(MillraceError):  # a damaged manifest, which is not why this run has failed
            committed = committed_run(output)
        summary = {
            "run": run_id,
            "dataset": committed,  # tells whether another job has committed since
            "error": message,
            "rejected": dict(reasons.most_common()),
            "message": message + reject_note,
        }
        folders.create(layout.join(folder, layout.SUMMARY), json.dumps(summary, indent=1).encode() + b"\n")
    return reject_note


def committed_run(output: str) -> str | None:
    """The run that the manifest is of; None if there is no manifest."""
    manifest = read_if_there(layout.join(output, layout.MANIFEST), "the manifest")
    return None if manifest is None else str(manifest["run"])


def _about_rejects(
    folder: str, first: Reject, reasons: collections.Counter[str], error: BaseException, *, lost: int
) -> str:
    by_reason = ", ".join(f"{reason} {rows:,}" for reason, rows in reasons.most_common())
    if "not_utf8" in reasons:
        by_reason += " (of files in another encoding: declare it in the schema, such as csv: {encoding: latin-1})"
    limit = ", or raise a limit" if "--max_reject" in str(error) else ""
    without = f" ({lost:,} of them without raw bytes: the input cannot be read again)" if lost else ""
    return (
        f"\nrejected: {by_reason}\n{_example(first)}\n"
        f"They are listed in {layout.join(folder, 'rejects-*.jsonl')}, with their places and raw bytes{without}. "
        f"Nothing was committed. Fix the input or the schema{limit}."
    )


def _example(reject: Reject) -> str:
    place = f"{reject.source}, byte {reject.offset:,}" if reject.offset else reject.source
    return f"one of them: {place}: {reject.column + ': ' if reject.column else ''}{reject.detail}"


def _rejects_in(staging: str, raw_bytes: RawBytes) -> Iterator[tuple[list[Reject], bool]]:
    """The rejects of each file, and whether they have raw bytes; those of the transform come last and together."""
    from beam_jobs.transform.rejects import PHASE, with_raw_bytes

    names = [name for name in storage.listdir(staging) if name.startswith("rejects-")]
    late = [layout.join(staging, name) for name in names if name.startswith(f"rejects-{PHASE}-")]
    for path in (layout.join(staging, name) for name in names):
        if path not in late:
            yield list(read_rejects(storage.read_bytes(path))), True
    if late:
        try:
            yield with_raw_bytes(late, raw_bytes), True
        except (MillraceError, OSError):  # an unreadable input may be the reason why the job failed
            yield with_raw_bytes(late, lambda rejects: [b""] * len(rejects)), False


def names(manifest: bytes | None, run: str) -> bool:
    """Whether a manifest names a run, which is then committed."""
    return manifest is not None and run.encode() in manifest


@dataclasses.dataclass(frozen=True)
class NewRun:
    """The run that is being written, and what its commit needs."""

    output: str
    id: str
    lease: Lease
    replaces: folders.Snapshot  # the manifest that was there when the lease was taken
    started: float = dataclasses.field(default_factory=time.time)  # in seconds since 1970
    keeps_staging: bool = False  # until after the commit, so that another attempt at the last step may repeat it
    begun: threading.Event = dataclasses.field(default_factory=threading.Event)  # `removed_on_error` cleans up

    @property
    def folder(self) -> str:
        return layout.join(self.output, self.id)

    @property
    def staging(self) -> str:
        return layout.join(self.folder, layout.STAGING)

    def write(self, work: Work[M]) -> M:
        """Executes the work here, commits its result, and removes what it and earlier jobs left behind.

        Raises:
          MillraceError: the run failed; nothing was committed, and the rejects are kept under `failed/`.
        """
        progress.reset(total=work.source.total)
        with CountersDisplay(quiet=work.options.quiet):
            try:
                self.begun.set()
                with interrupts.interruptible():
                    manifest = execute(work, self)
            except BaseException as error:
                manifest = self.after(error, work)
            work.kind.clear(self.output, self.lease)
        return manifest

    def after(self, error: BaseException, work: Work[M]) -> M:
        """Saves the rejects of the failed run, removes its other files, and raises `error` again.

        Returns:
          The manifest, if the error came after the commit: then what was written is complete, and nothing is removed.

        Raises:
          MillraceError: a MillraceError, a full disk, or the loss of the lease, with a summary of the rejects.
          BaseException: any other `error`, unchanged.
        """
        refused = refused_by_disk(str(error))
        message = str(error) if refused is None else f"{refused}. Free some space, or use another disk."
        with retries.ending():
            rejected = ""
            try:
                manifest = folders.look(layout.join(self.output, layout.MANIFEST)).data
            except MillraceError as problem:
                left = f"\nWhether it was committed could not be found out, so {self._left(problem)}"
            else:
                if names(manifest, self.id):
                    return work.kind.read(self.output)
                rejected, left = self._cleaned_up(error, work.source.raw_bytes)
            if isinstance(error, Exception) and not isinstance(error, LeaseError) and self.lease.is_lost():
                raise self.lease.lost() from error  # the new holder may have removed files that this job then missed
        if isinstance(error, MillraceError) or refused is not None:
            own = type(error) if isinstance(error, MillraceError) and refused is None else MillraceError
            raise own(f"{message}{rejected}{left}") from error
        if rejected or left:
            print(f"{self.output}: the job failed{rejected}{left}", file=sys.stderr)
        raise error

    def _cleaned_up(self, error: BaseException, raw_bytes: RawBytes) -> tuple[str, str]:
        """Keeps the rejects, and removes everything else. Returns what to say of the rejects, and of what is left."""
        rejected = ""
        try:
            rejected = keep_failed(self.output, self.id, error, raw_bytes)
        except (MillraceError, OSError) as problem:  # the disk that is full, or the server that failed
            rejected = f"\nIts rejects could not be kept: {problem}"
        try:
            folders.remove(self.folder)
        except MillraceError as problem:
            return rejected, f"\n{self._left(problem)}"
        return rejected, ""

    def _left(self, problem: MillraceError) -> str:
        return (
            f"{self.folder} stays until the next job there, or `millrace dataset prune {self.output}`, removes it: "
            f"{problem}"
        )


@contextlib.contextmanager
def new_run(output: str, *, break_lease: bool = False) -> Iterator[NewRun]:
    """Holds the lease on an output folder for a new run. `break_lease`: see `schemas.dataset.lease.hold`.

    What was read from the folder before may be out of date: another job may have committed in the meantime. A local
    run's folder is removed if the block fails before the run is written.

    Raises:
      LeaseError: another process, or a job on a cluster that goes on, holds the lease.
    """
    run_id = layout.new_run_id()
    with lease.hold(output, run=run_id, has_ended=has_ended, break_lease=break_lease) as run_lease:
        run = NewRun(output, run_id, run_lease, folders.look(layout.join(output, layout.MANIFEST)))
        try:
            yield run
        finally:
            if not run.begun.is_set() and storage.is_local(output):
                with contextlib.suppress(MillraceError):  # the next job, or prune, removes what stays
                    folders.remove(run.folder)


@dataclasses.dataclass(frozen=True)
class OtherTransform:
    """The transform of another dataset's run; without a run, one that was measured."""

    run_dir: str
    run: str | None
    preprocessing_fn: str | None

    @classmethod
    def of(cls, base: OpenDataset) -> OtherTransform:
        """The transform that a dataset's records went through."""
        return cls(base.graphs_dir, base.run, base.manifest.preprocessing_fn)


@dataclasses.dataclass(frozen=True)
class Records:
    """What a run writes to a dataset, as its commit has to know it.

    Attributes:
      options: the job's.
      source: the raw data.
      transform: the one that is applied; None: it is measured.
      onto: the dataset that the records are added to.
      tried: its rejects, of which the records are corrections; none: they are new input.
      allow_drift: no threshold of drift fails it.
    """

    options: JobOptions
    source: Described
    transform: OtherTransform | None
    _: dataclasses.KW_ONLY
    onto: OpenDataset | None = None
    tried: Sequence[Reject] = ()
    allow_drift: bool = False

    @property
    def transform_from(self) -> str | None:
        """The run whose transform is applied."""
        return self.transform.run if self.transform else None

    @property
    def own_function(self) -> str | None:
        """The user's preprocessing_fn, if the transform is not derived from the schema."""
        return (self.transform or self.options).preprocessing_fn


class Committing(Protocol[M_co]):
    """What commits a run. On a cluster it is sent to a worker, so it holds no listing of the input."""

    @property
    def kind(self) -> Kind[M_co]:
        """What is written."""

    @property
    def source(self) -> Rereadable:
        """Reads the raw bytes of rejects."""

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result) -> M_co:
        """Checks and commits the result of the pipeline."""


class Work(Committing[M_co], Protocol[M_co]):
    """What a run does: it reads a source, sends the records through a pipeline, and commits what comes out."""

    @property
    def options(self) -> RunnerOptions:
        """Where it runs."""

    @property
    def source(self) -> Staged:
        """What is read."""

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], beam.PCollection]:
        """What builds the pipeline, which ends in `beam_jobs.records.result.write_at_end`."""

    def committing(self, inputs: StagedInputs) -> Committing[M_co]:
        """What commits the run on a worker. `inputs`: as they were staged."""


@contextlib.contextmanager
def built(work: Work[M], run: NewRun) -> Iterator[tuple[StagedInputs, Callable[[beam.Pipeline], beam.PCollection]]]:
    """The staged input, and what builds the pipeline, whose temporary folder is there while the block runs."""
    folders.make(run.staging)
    inputs = work.source.stage(run.staging)
    with temporary_folder(run.staging, here=work.options.is_local) as temp_dir:
        yield inputs, work.pipeline(run, inputs, temp_dir)


def execute(work: Work[M], run: NewRun) -> M:
    """Runs the pipeline to its end, and commits its result."""
    from beam_jobs.engines import runner
    from beam_jobs.records.result import RESULT, read_result

    run = dataclasses.replace(run, started=time.time())
    with built(work, run) as (inputs, build):
        runner.run(work.options, build, staging=run.staging, total=work.source.total)
    progress.enter("committing")
    return work.commit(run, inputs, read_result(layout.join(run.staging, RESULT)))


def load_libraries(*, verbose: bool = False, configure: bool = True, quiet: bool = True) -> None:
    """Imports TensorFlow, Beam and tf.Transform, which takes seconds.

    Args:
      verbose: with TensorFlow's own log.
      configure: set TensorFlow up for a job; False if the process also does other work.
      quiet: do not say so.
    """
    if configure and not quiet:
        progress.say("starting TensorFlow and Beam")
    with starting_tensorflow(verbose=verbose, own_process=configure):
        if not configure:
            importlib.import_module("beam_jobs.records.result")
            return
        quick_import("beam_jobs.records.result")
        tensorflow = importlib.import_module("tensorflow")
        if verbose:
            tensorflow.compat.v1.logging.set_verbosity(logging.INFO)
        tensorflow.config.set_visible_devices([], "GPU")  # the graphs are small; a GPU would only be taken from others
        with contextlib.suppress(RuntimeError):  # if TensorFlow runs already, its threads stay as they are
            # Batches and images fill the cores by themselves. Threads inside an op would spin while they wait for work.
            tensorflow.config.threading.set_intra_op_parallelism_threads(1)


def temporary_folder(staging: str, *, here: bool) -> contextlib.AbstractContextManager[str]:
    """The folder for tf.Transform's graphs and, in a local job, for everything that it reads again before the commit.

    `here`: the job is local. The folder is in the staging folder, so that it is removed with the leftovers of a killed
    job. A local job that writes to GCS has it on local disk.
    """
    if here and not storage.is_local(staging):
        return tempfile.TemporaryDirectory(prefix="millrace-")
    folder = layout.join(staging, "tft")
    folders.make(folder)
    return contextlib.nullcontext(folder)


SOURCES: Mapping[type[AnySchema], Callable[[Any, JobInput], JobSource]] = {
    Schema: open_rows,
    ImageSchema: open_images,
}


def open_source(schema: AnySchema, raw: JobInput) -> JobSource:
    """The source that a job reads. Raises UsageError if the input does not match the schema."""
    return SOURCES[type(schema)](schema, raw)
