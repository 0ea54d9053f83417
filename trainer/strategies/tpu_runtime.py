"""Whether a TPU can be reached from here, and why not."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError

SHUTDOWN = "TF_TPU_GRACEFUL_SHUTDOWN_MODE"


def resolver(name: str) -> Any:
    """The cluster resolver of a TPU.

    Raises:
      UsageError: this TensorFlow is built without TPUs, or finds no such TPU.
    """
    if not has_kernels():
        version = importlib.metadata.version("tensorflow")
        raise UsageError(
            f"--tpu {name}: TensorFlow {version} is built without TPUs, whether libtpu is installed or not. The "
            "package tensorflow-tpu, which has them, ends at 2.20, and this project needs 2.21. Train on a GPU or CPU, "
            "or try the same way on the CPU with --tpu cpu."
        )
    # At the end, TPUEstimator would call a part of TensorFlow that is gone, to save once more when preempted.
    os.environ.setdefault(SHUTDOWN, "")
    try:
        found = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        found.cluster_spec()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise UsageError(f"--tpu {name}: no such TPU ({str(error).splitlines()[0]})") from error
    return found


def has_kernels() -> bool:
    """Whether this build of TensorFlow can run a step on a TPU."""
    kernels: Any = importlib.import_module("tensorflow.python.framework.kernels")  # private: tf.sysconfig tells of GPUs
    return bool(kernels.get_registered_kernels_for_op("TPUExecute").kernel)
