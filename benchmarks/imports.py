"""A job's imports alone, as a measured process."""

from __future__ import annotations

import apache_beam  # noqa: F401
import tensorflow as tf  # noqa: F401
import tensorflow_transform.beam  # noqa: F401

from benchmarks.task import Task


def write(task: Task) -> None:
    """Does nothing."""
