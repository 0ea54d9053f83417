"""A run that a job or a replay writes: the lease on the output, the progress display, and the cleanup afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import TypeVar

from beam_jobs.core import progress
from beam_jobs.core.display import Display
from beam_jobs.core.options import JobOptions
from beam_jobs.engines.jobs import has_ended_in
from beam_jobs.runs.cleanup import after_failure, clear
from beam_jobs.transform.rejects import RawBytes
from schemas import interrupts, storage
from schemas.dataset import layout, lease
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import read_manifest
from schemas.libraries import quick_import, starting_tensorflow
from schemas.storage import folders

M = TypeVar("M")  # a manifest: of a dataset, or of predictions


@dataclasses.dataclass(frozen=True)
class NewRun:
    """The run that is being written, and what its commit needs."""

    output: str
    id: str
    lease: Lease
    replaces: folders.Seen  # the manifest that was there when the lease was taken

    @property
    def folder(self) -> str:
        return layout.join(self.output, self.id)

    @property
    def staging(self) -> str:
        return layout.join(self.folder, layout.STAGING)

    def write(
        self,
        body: Callable[[], M],
        *,
        total: int,
        quiet: bool,
        raw_bytes: RawBytes,
        read: Callable[[str], M],
        clear: Callable[[str, Lease], None] = clear,
    ) -> M:
        """Writes and commits the run, and removes what it and earlier jobs left behind.

        Args:
          body: writes and commits, and returns the new manifest.
          total: how much there is to read, as `beam_jobs.core.progress` counts it.
          quiet: shows no progress.
          raw_bytes: reads the rejected records from the input if the run fails.
          read: reads the manifest, if the run fails after its commit.
          clear: removes what earlier runs left behind.

        Raises:
          MillraceError: the run failed; nothing was committed, and the rejects are kept under `failed/`.
        """
        progress.reset(total=total)
        with Display(enabled=not quiet):
            try:
                with interrupts.interruptible():
                    manifest = body()
            except BaseException as error:
                manifest = self._after(error, raw_bytes, read)
            clear(self.output, self.lease)
        return manifest

    @contextlib.contextmanager
    def cleaned_up(self, raw_bytes: RawBytes) -> Iterator[None]:
        """If the block fails before it has submitted a job, removes the run's files but for its rejects.

        Raises:
          MillraceError: as in `write`.
        """
        try:
            with interrupts.interruptible():
                yield
        except BaseException as error:
            if not self.lease.is_remote:  # else the job goes on
                self._after(error, raw_bytes, read_manifest)
            raise

    def _after(self, error: BaseException, raw_bytes: RawBytes, read: Callable[[str], M]) -> M:
        return after_failure(
            error,
            output=self.output,
            run_id=self.id,
            staging=self.staging,
            held=self.lease,
            raw_bytes=raw_bytes,
            read=read,
        )


@contextlib.contextmanager
def new_run(output: str) -> Iterator[NewRun]:
    """Holds the lease on an output folder for a new run.

    What was read from the folder before may be out of date: another job may have committed in the meantime.

    Raises:
      LeaseError: another process, or a job on a cluster that goes on, holds the lease.
    """
    run_id = layout.new_run_id()
    with lease.hold(output, run=run_id, has_ended=has_ended_in(output)) as held:
        yield NewRun(output, run_id, held, folders.look(layout.join(output, layout.MANIFEST)))


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
            importlib.import_module("beam_jobs.output.pipeline_end")
            return
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # as tf.Transform does, before TensorFlow imports Keras 3 too
        quick_import("beam_jobs.output.pipeline_end")
        tensorflow = importlib.import_module("tensorflow")
        if verbose:
            tensorflow.compat.v1.logging.set_verbosity(logging.INFO)
        tensorflow.config.set_visible_devices([], "GPU")  # the graphs are small; a GPU would only be taken from others
        with contextlib.suppress(RuntimeError):  # if TensorFlow runs already, its threads stay as they are
            # Batches and images fill the cores by themselves. Threads inside an op would spin while they wait for work.
            tensorflow.config.threading.set_intra_op_parallelism_threads(1)


def temporary_folder(options: JobOptions, staging: str) -> contextlib.AbstractContextManager[str]:
    """The folder for tf.Transform's graphs and, in a local job, for everything that it reads again before the commit.

    It is in the staging folder, so that it is removed with the leftovers of a killed job. A local job that writes to
    GCS has it on local disk.
    """
    if options.is_local and not storage.is_local(staging):
        return tempfile.TemporaryDirectory(prefix="millrace-")
    folder = layout.join(staging, "tft")
    folders.make(folder)
    return contextlib.nullcontext(folder)
