"""A job's imports alone, without the garbage collector, as a measured process."""

from __future__ import annotations

import gc

gc.disable()
import apache_beam  # noqa: E402, F401
import tensorflow as tf  # noqa: E402, F401
import tensorflow_transform.beam  # noqa: E402, F401
from tfx_bsl.public import tfxio  # noqa: E402, F401

from benchmarks.task import Task  # noqa: E402


def write(task: Task) -> None:
    """Does nothing."""
