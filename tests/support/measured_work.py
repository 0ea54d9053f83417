"""Tasks for the tests of measurements; they import nothing heavy."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.task import Task


def write(task: Task) -> None:
    """Holds 100 MB and writes a file."""
    held = np.ones(100 << 20, np.uint8)
    (Path(task.output) / "done").write_text(str(held.sum()))


def fail(task: Task) -> None:
    """Fails."""
    raise OSError("the disk is full")


def hang(task: Task) -> None:
    """Does not end."""
    time.sleep(3600)
