"""How much TensorFlow says: by default nothing but errors. Importing this imports no TensorFlow."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from schemas.exports.session import set_log_level
from schemas.libraries import quick_import, starting_tensorflow

if TYPE_CHECKING:
    from trainer.spec.options import StepOptions


def start_for(options: StepOptions) -> None:
    """Starts TensorFlow with the devices and threads that a training asks for, and says so unless it is quiet."""
    if not options.quiet:
        print("starting TensorFlow", file=sys.stderr, flush=True)
    threads = {"inter_op": options.inter_op_threads, "intra_op": options.intra_op_threads}
    start_tensorflow(verbose=options.verbose, logical_cpus=options.logical_cpus, **threads)


def start_tensorflow(
    *, verbose: bool, logical_cpus: int | None = None, inter_op: int | None = None, intra_op: int | None = None
) -> None:
    """Imports TensorFlow, and finds its devices. Its logs, and Estimator's, are of errors only, unless `verbose`.

    Args:
      verbose: whether TensorFlow logs more than errors.
      logical_cpus: how many devices the CPU is divided into.
      inter_op, intra_op: threads; see `trainer.strategies.run_config`.
    """
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "16")  # of each open shard; TensorFlow's default is 64
    with starting_tensorflow(verbose=verbose):
        quick_import("tensorflow", "trainer.estimator")  # the latter settles which Keras tf.keras is, before it is used
        import tensorflow as tf

        from trainer.strategies.run_config import set_threads, split_cpu

        set_threads(inter_op=inter_op, intra_op=intra_op)
        split_cpu(logical_cpus)
        tf.config.list_logical_devices()
    set_log_level(logging.INFO if verbose else logging.ERROR)
