"""Measures one task in a process of its own.

    python -m benchmarks.measure MODULE:FUNCTION TASK_JSON

starts `benchmarks.worker`, waits for it and prints one line of JSON: what the worker tells, and what the whole process
took, start-up included. `measure` runs it, if wanted under another command (`taskset`, `flock`), whose own time is not
counted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.task import Task


class WorkFailed(Exception):
    """The measured process failed; the message is the end of what it said."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """What one task took.

    Attributes:
      count: rows or images that were written, or read within the timed part.
      seconds, cpu: of the work, imports left out; of a reader the timed part.
      whole_seconds, whole_cpu: of the process from its start to its end, its children included.
      peak_bytes: the most memory that it held; None where the system does not tell.
      classes: how many of each class a reader gave, where it read whole epochs.
    """

    count: int
    seconds: float
    cpu: float
    whole_seconds: float
    whole_cpu: float
    peak_bytes: int | None
    classes: dict[str, int] | None = None

    @property
    def rate(self) -> float:
        """Rows or images a second."""
        return self.count / self.seconds

    @property
    def cpu_each(self) -> float:
        """Seconds of CPU for each row or image."""
        return self.cpu / self.count


def measure(function: str, task: Task, *, under: Sequence[str] = ()) -> Figures:
    """Runs a task in a process of its own.

    Raises:
      WorkFailed: it did not end well.
    """
    command = [*under, sys.executable, "-m", "benchmarks.measure", function, task.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkFailed(f"{function}: exit status {done.returncode}: ...{done.stderr[-2000:]}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def main(argv: list[str]) -> int:
    """Starts the worker and tells what it took."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", *argv], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        told = worker.stdout.read()
        _, status, usage = os.wait4(worker.pid, 0)
        worker.returncode = os.waitstatus_to_exitcode(status)
    whole = {"whole_seconds": time.perf_counter() - begun, "whole_cpu": usage.ru_utime + usage.ru_stime}
    if worker.returncode == 0:
        print(json.dumps({**json.loads(told.splitlines()[-1]), **whole}))
    return abs(worker.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
