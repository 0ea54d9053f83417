"""A task for the tests of measurements; it imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.task import Task


def write(task: Task) -> None:
    """Holds 100 MB and writes a file."""
    held = np.ones(100 << 20, np.uint8)
    (Path(task.output) / "done").write_text(str(held.sum()))
