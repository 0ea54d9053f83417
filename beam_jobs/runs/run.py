"""What a job is made of: the run that it writes, its source, its pipeline, and what commits the result."""

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
        """Prunes, and only warns if that fails: what was written is complete without it."""
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


@dataclasses.dataclass(frozen=True)
class NewRun:
    """A run that is being written. Its name is what its last step, its launcher and its lease know each other by."""

    output: str
    id: str
    replaces: folders.Snapshot  # the manifest that was there when the lease was taken
    started: float = dataclasses.field(default_factory=time.time)  # in seconds since 1970

    @property
    def folder(self) -> str:
        return layout.join(self.output, self.id)

    @property
    def staging(self) -> str:
        """The folder of what only the pipeline and the last step read."""
        return layout.join(self.folder, layout.STAGING)

    def is_committed(self) -> bool:
        """Returns whether the manifest names this run."""
        manifest = folders.look(layout.join(self.output, layout.MANIFEST)).data
        return manifest is not None and self.id.encode() in manifest

    def remove_files(self) -> None:
        """Removes what only the last step reads, and then the rest, unless it is committed. May be repeated."""
        committed = self.is_committed()
        folders.remove(self.staging)  # first: without these files, nothing commits the run any more
        if not committed:
            folders.remove(self.folder)


@contextlib.contextmanager
def new_run(output: str, *, break_lease: bool = False) -> Iterator[NewRun]:
    """Holds the lease on an output folder for a new run. `break_lease`: see `schemas.dataset.lease.hold`.

    What was read from the folder before may be out of date: another job may have committed in the meantime. A local
    run's folder is removed if the block fails, unless it is committed or a job on a cluster goes on writing it.

    Raises:
      LeaseError: another process, or a job on a cluster that goes on, holds the lease.
    """
    run_id = layout.new_run_id()
    with lease.hold(output, run=run_id, has_ended=has_ended, break_lease=break_lease):
        run = NewRun(output, run_id, folders.look(layout.join(output, layout.MANIFEST)))
        try:
            yield run
        except BaseException:
            if storage.is_local(output):
                with contextlib.suppress(MillraceError):  # the next job, or prune, removes what stays
                    if not isinstance(lease.holder_of(output), RemoteHolder) and not run.is_committed():
                        folders.remove(run.folder)
            raise


@dataclasses.dataclass(frozen=True)
class OtherTransform:
    """The transform of another dataset's run; without a run, one that was measured."""

    run_dir: str
    run: str | None
    preprocessing_fn: str | None

    @classmethod
    def of(cls, base: OpenDataset) -> OtherTransform:
        """Returns the transform that a dataset's records went through."""
        return cls(base.graphs_dir, base.run, base.manifest.preprocessing_fn)


class Committer(Protocol[M_co]):
    """Commits a run. It is sent to a worker, where the job has any, so it holds no listing of the input."""

    @property
    def kind(self) -> Kind[M_co]:
        """What is written."""

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Reads the raw bytes of rejected records from the input again, which must not have changed."""

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result) -> M_co:
        """Checks the result of the pipeline, and commits it."""


class PipelineJob(Protocol[M_co]):
    """What `beam_jobs.runs.execute` runs: it reads a source, sends the records through a pipeline, and commits."""

    @property
    def kind(self) -> Kind[M_co]:
        """What is written."""

    @property
    def options(self) -> RunnerOptions:
        """Where it runs."""

    @property
    def source(self) -> Staged:
        """What is read."""

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], beam.PCollection]:
        """Returns what builds the pipeline, which ends in `beam_jobs.records.result.write_at_end`."""

    def committer(self, inputs: StagedInputs) -> Committer[M_co]:
        """Returns what commits the result. `inputs`: as they were staged."""


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
    """Makes a folder for tf.Transform's graphs and, in a local job, for what it reads again before the commit.

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
    """Opens the source that a job reads. Raises UsageError if the input does not match the schema."""
    return SOURCES[type(schema)](schema, raw)
