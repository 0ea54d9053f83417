"""Measures one task in its own process.

    python -m benchmarks.measure MODULE:FUNCTION TASK_JSON

starts `benchmarks.worker`, waits for it and prints one line of JSON: the worker's figures, and those of the entire
process, start-up included. `measure` runs it, optionally under another command (`taskset`, `flock`), whose own time is
not counted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.task import Task


class WorkFailed(Exception):
    """The measured process failed; the message ends with the end of its standard error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one task.

    Attributes:
      count: the rows or images that were written, or read within the timed part.
      seconds, cpu: the time of the work, without imports; for a reader, of the timed part.
      whole_seconds, whole_cpu: the time of the process from start to end, including its children.
      peak_bytes: its peak memory; None if the system does not provide it.
      classes: the number of records of each class, if a reader read complete epochs.
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
        """Rows or images per second."""
        return self.count / self.seconds

    @property
    def cpu_each(self) -> float:
        """Seconds of CPU per row or image."""
        return self.cpu / self.count


LIMIT = 300.0  # seconds; the slowest way takes one minute


def measure(function: str, task: Task, *, under: Sequence[str] = ()) -> Figures:
    """Runs a task in its own process, which is killed after `LIMIT` seconds.

    Raises:
      WorkFailed: the process failed or was killed.
    """
    command = [*under, sys.executable, "-m", "benchmarks.measure", function, task.to_json()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT)
        except BaseException as error:  # also Ctrl-C, which does not reach a process in its own session
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise WorkFailed(f"{function}: killed, as it was not done after {LIMIT:g} s") from None
    if process.returncode:
        raise WorkFailed(f"{function}: exit status {process.returncode}: ...{err[-2000:]}")
    return Figures(**json.loads(out.splitlines()[-1]))


def main(argv: list[str]) -> int:
    """Runs the worker and prints its figures."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", *argv], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        answer = worker.stdout.read()
        _, status, usage = os.wait4(worker.pid, 0)
        worker.returncode = os.waitstatus_to_exitcode(status)
    whole = {"whole_seconds": time.perf_counter() - begun, "whole_cpu": usage.ru_utime + usage.ru_stime}
    if worker.returncode == 0:
        print(json.dumps({**json.loads(answer.splitlines()[-1]), **whole}))
    return abs(worker.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
