"""A run that a job or a replay writes: the lease on the output, the display of progress, and the cleanup behind it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator

from beam_jobs.core import interrupts, progress
from beam_jobs.core.options import JobOptions
from beam_jobs.output.cleanup import after_failure, clear
from beam_jobs.transform.rejects import RawBytes
from schemas import storage
from schemas.dataset import layout, lease
from schemas.dataset.manifest import Manifest
from schemas.quick_import import quick_import
from schemas.storage import compare_and_swap


@dataclasses.dataclass(frozen=True)
class NewRun:
    """The run that is being written, and what it takes to commit it."""

    output: str
    id: str
    lease: lease.Lease
    replaces: compare_and_swap.Seen  # the manifest that was there when the lease was taken

    @property
    def folder(self) -> str:
        return layout.join(self.output, self.id)

    @property
    def staging(self) -> str:
        return layout.join(self.folder, "staging")

    def write(self, body: Callable[[], Manifest], *, total: int, quiet: bool, raw_bytes: RawBytes) -> Manifest:
        """Has the run written and committed, and removes what it, or an earlier job, left behind.

        Args:
          body: writes and commits, and returns the new manifest.
          total: how much there is to read, as `beam_jobs.core.progress` counts it.
          quiet: shows no progress.
          raw_bytes: reads rejects' records from the input, where the run fails.

        Raises:
          MillraceError: it failed; nothing was committed, and the rejects are kept under `failed/`.
        """
        progress.reset(total=total)
        with progress.Display(enabled=not quiet):
            try:
                with interrupts.remembered():
                    manifest = body()
            except BaseException as error:
                manifest = after_failure(
                    error,
                    output=self.output,
                    run_id=self.id,
                    staging=self.staging,
                    held=self.lease,
                    raw_bytes=raw_bytes,
                )
            clear(self.output, self.lease)
        return manifest


@contextlib.contextmanager
def new_run(output: str) -> Iterator[NewRun]:
    """Holds the lease on an output folder for a new run.

    What was read of the folder before may have changed since: another job may have committed until the lease was taken.

    Raises:
      LeaseError: another process holds it.
    """
    run_id = layout.new_run_id()
    with lease.hold(output, run=run_id) as held:
        yield NewRun(output, run_id, held, compare_and_swap.look(layout.join(output, layout.MANIFEST)))


def load_libraries(*, verbose: bool = False) -> None:
    """Imports what takes seconds: TensorFlow, Beam, tf.Transform. `verbose`: with TensorFlow's own log."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # as tf.Transform does, but before TensorFlow imports Keras 3 too
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "2")
    quick_import("beam_jobs.output.pipeline_end")
    tensorflow = importlib.import_module("tensorflow")
    if verbose:
        tensorflow.compat.v1.logging.set_verbosity(logging.INFO)
    tensorflow.config.set_visible_devices([], "GPU")  # the graphs are small; a GPU would only be kept from others
    with contextlib.suppress(RuntimeError):  # where TensorFlow runs already, its threads stay as they are
        # Batches and images fill the cores by themselves. Threads inside an op would spin while they wait for work.
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)


def temporary_folder(options: JobOptions, staging: str) -> contextlib.AbstractContextManager[str]:
    """Where tf.Transform keeps its graphs: in the staging folder, which goes when a killed job's leftovers go.

    Except where one machine writes to GCS: what is local is faster on a local disk.
    """
    if options.is_local and not storage.is_local(staging):
        return tempfile.TemporaryDirectory()
    return contextlib.nullcontext(layout.join(staging, "tft"))
