"""Runs one task in a process of its own, and describes the machine that it runs on."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
import sys

from benchmarks.task import Figures, Task

LIMIT = 300.0  # seconds; the slowest candidate takes one minute
PACKAGES = (
    *("tensorflow", "tensorflow-transform", "apache-beam", "tfx-bsl", "pyarrow", "numpy", "pandas", "pillow"),
    *("tensorflow-datasets", "webdataset", "scikit-learn", "lightgbm"),
)


class WorkFailed(Exception):
    """The measured process failed; the message ends with the end of its standard error."""


def measure(task: Task) -> Figures:
    """Performs a task in its own process, which is killed after `LIMIT` seconds.

    Raises:
      WorkFailed: the process failed or was killed.
    """
    command = [sys.executable, "-m", "benchmarks.worker", task.to_json()]
    try:
        worker = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkFailed(f"{task.function}: not done after {LIMIT:g} s") from error
    if worker.returncode:
        raise WorkFailed(f"{task.function}: exit status {worker.returncode}: ...{worker.stderr[-2000:]}")
    return Figures(**json.loads(worker.stdout.splitlines()[-1]))


def conditions(*, real_data: bool) -> dict[str, str]:
    """Describes a measurement that begins now: machine, versions, time, load, and whether the inputs are real."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "real_data": str(real_data).lower(),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": f"{os.getloadavg()[0]:.1f}",
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
        return next(names, platform.processor())
