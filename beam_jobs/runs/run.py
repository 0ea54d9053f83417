"""The parts of a job: the run that it writes, its source, its pipeline, and the committer of its result."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from beam_jobs.core import progress
from beam_jobs.core.options import RunnerOptions
from beam_jobs.core.source import JobInput, JobSource, Staged
from beam_jobs.engines.jobs import has_ended
from beam_jobs.images.source import open_images
from beam_jobs.rows.source import open_rows
from schemas import storage
from schemas.dataset import OpenDataset, layout, lease
from schemas.dataset.holders import RemoteHolder
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import read_manifest
from schemas.dataset.prune import foreign, prune
from schemas.errors import MillraceError, UsageError
from schemas.libraries import quick_import, starting_tensorflow
from schemas.rejects import Reject
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.inputs import StagedInputs
    from beam_jobs.records.result import Result

M = TypeVar("M")  # a manifest
M_co = TypeVar("M_co", covariant=True)


@dataclasses.dataclass(frozen=True)
class Kind(Generic[M_co]):
    """The kind of output that a run writes: a dataset or predictions.

    Attributes:
      noun: the name of the kind in messages: "a dataset" or "predictions".
      read: reads the manifest of an output folder.
      prune: removes leftovers of killed jobs, and replaced runs that no reader can still have open.
    """

    noun: str
    read: Callable[[str], M_co]
    prune: Callable[[str, Lease], object]

    def clear(self, output: str, run_lease: Lease) -> None:
        """Prunes the output folder after a commit. If that fails, prints a warning, because the output is complete."""
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
      noun: the kind of output, see `Kind`.
      overwrite: allow that the folder holds output of the same kind, which is then replaced.

    Raises:
      UsageError: the path is not a folder, is inside a dataset or a model directory, or holds other files; or it holds
        output of the same kind, and `overwrite` is False.
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


@dataclasses.dataclass(frozen=True)
class NewRun:
    """A run that is being written.

    Attributes:
      output: the output folder; the run is the folder `id` in it.
      id: the name of the run. The lease names it, and so the run's last step, on any machine, finds its lease.
      replaces: the manifest of the output folder when the lease was taken. The commit replaces this one only.
      started: when the run began, in seconds since 1970.
    """

    output: str
    id: str
    replaces: folders.Snapshot
    started: float = dataclasses.field(default_factory=time.time)

    @property
    def folder(self) -> str:
        return layout.join(self.output, self.id)

    @property
    def staging(self) -> str:
        """The folder for temporary files, which only the pipeline and the last step read."""
        return layout.join(self.folder, layout.STAGING)

    def is_committed(self) -> bool:
        """Returns whether the manifest names this run."""
        manifest = folders.look(layout.join(self.output, layout.MANIFEST)).data
        return manifest is not None and self.id.encode() in manifest

    def remove_files(self) -> None:
        """Deletes the staging folder, and then, if the run is not committed, the whole run. Safe to call again."""
        committed = self.is_committed()
        folders.remove(self.staging)  # first: without these files, no attempt can commit the run any more
        if not committed:
            folders.remove(self.folder)


@contextlib.contextmanager
def new_run(output: str, *, break_lease: bool = False) -> Iterator[NewRun]:
    """Takes the lease on an output folder and yields a new run. The lease is held while the block runs.

    Another job may have committed before the lease was taken, so read the folder again inside the block. If the block
    fails, the folder of a local run is deleted, unless the run is committed or a job on a cluster goes on writing it.

    Args:
      output: the output folder.
      break_lease: take the lease from a holder that may still be running, see `schemas.dataset.lease.hold`.

    Raises:
      LeaseError: another process, or a job on a cluster that is still running, holds the lease.
    """
    run_id = layout.new_run_id()
    with lease.hold(output, run=run_id, has_ended=has_ended, break_lease=break_lease):
        run = NewRun(output, run_id, folders.look(layout.join(output, layout.MANIFEST)))
        try:
            yield run
        except BaseException:
            if storage.is_local(output):
                with contextlib.suppress(MillraceError):  # the next job, or prune, deletes the files that remain
                    if not isinstance(lease.holder_of(output), RemoteHolder) and not run.is_committed():
                        folders.remove(run.folder)
            raise


@dataclasses.dataclass(frozen=True)
class OtherTransform:
    """A transform that another dataset's run has measured already.

    Attributes:
      run_dir: the folder with the transform's graphs.
      run: the name of the run that measured the transform; None: not a run of a dataset.
      preprocessing_fn: the user's function that the transform was made with; None: it was derived from the schema.
    """

    run_dir: str
    run: str | None
    preprocessing_fn: str | None

    @classmethod
    def of(cls, base: OpenDataset) -> OtherTransform:
        """Returns the transform of a dataset."""
        return cls(base.graphs_dir, base.run, base.manifest.preprocessing_fn)


class Committer(Protocol[M_co]):
    """Commits a run. On a cluster, it is sent to a worker, so it holds no listing of the input, which may be large."""

    @property
    def kind(self) -> Kind[M_co]:
        """The kind of output."""

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Reads the raw bytes of rejected records from the input again. The input must not have changed."""

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result) -> M_co:
        """Checks the result of the pipeline, and commits it."""


class PipelineJob(Protocol[M_co]):
    """A job that `beam_jobs.runs.execute` can run: a source, a pipeline for its records, and a committer."""

    @property
    def kind(self) -> Kind[M_co]:
        """The kind of output."""

    @property
    def options(self) -> RunnerOptions:
        """The options of the runner: where the job runs."""

    @property
    def source(self) -> Staged:
        """The input of the job."""

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], beam.PCollection]:
        """Returns a function that adds the job's steps to a pipeline, up to `beam_jobs.records.result.write_at_end`."""

    def committer(self, inputs: StagedInputs) -> Committer[M_co]:
        """Returns the committer of the result. `inputs`: the staged inputs."""


def load_libraries(*, verbose: bool = False, configure: bool = True, quiet: bool = True) -> None:
    """Imports TensorFlow, Beam and tf.Transform, which takes seconds.

    Args:
      verbose: show TensorFlow's own log.
      configure: set TensorFlow up for a job: without GPU, and with one thread for each op. False if the process also
        does other work with TensorFlow.
      quiet: do not print that TensorFlow and Beam are starting.
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
        tensorflow.config.set_visible_devices([], "GPU")  # the graphs are small, and leave the GPU to other processes
        with contextlib.suppress(RuntimeError):  # if TensorFlow runs already, its threads stay as they are
            # Several batches or images are processed at once, which keeps all cores busy. Threads inside an op would
            # only spin while they wait for work.
            tensorflow.config.threading.set_intra_op_parallelism_threads(1)


def temporary_folder(staging: str, *, here: bool) -> contextlib.AbstractContextManager[str]:
    """Makes a folder for temporary files: tf.Transform's graphs and, in a local job, fragments and cached data.

    The folder is in the staging folder, so that the next job deletes it if this job is killed. Only a local job that
    writes to GCS gets a folder on local disk, which is deleted at the end of the block.

    Args:
      staging: the staging folder of the run.
      here: whether the job is local.
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
    """Opens the source that a job reads. Raises UsageError if the input does not match the schema."""
    return SOURCES[type(schema)](schema, raw)
