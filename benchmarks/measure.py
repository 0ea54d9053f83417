"""Runs one task in a process of its own: what it has to do, the figures that it reports, and the machine it runs on.

`python -m benchmarks.measure TASK_JSON` is that process. Importing the candidate's module is not part of the task.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import importlib
import importlib.metadata
import itertools
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

LIMIT = 300.0  # seconds; the slowest candidate takes one minute
PACKAGES = (
    *("tensorflow", "tensorflow-transform", "apache-beam", "tfx-bsl", "pyarrow", "numpy", "pandas", "pillow"),
    *("tensorflow-datasets", "webdataset", "scikit-learn", "lightgbm"),
)
Kind = Literal["write", "read", "train"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkTask:
    """One piece of work.

    Attributes:
      kind: `write`: write the records of `source` to `output`; `read`: yield the labels of shuffled training batches of
        `source`; `train`: train on `source`, and return scores.
      function: `module:function` in `benchmarks.candidates`. It takes this task and `options`.
      options: keyword arguments of the function.
      source: the file or folder to read.
      table: the name of the data's `benchmarks.tables.Table`; '' for photos and for sets of `benchmarks.model_sets`.
      rows: the number of rows or photos in the source.
      output: the folder that a writer writes to.
      epochs: a reader's passes over the source; 0: without end.
      seconds: how long an endless reader is timed, after a first pass to warm up.
      batch_size, shuffle_buffer: of a reader, in records.
      seed: the seed of a training.
      max_steps: the steps of a training of Millrace, but of trees; 0: as many as it chooses itself.
    """

    kind: Kind
    function: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source: str
    table: str = ""
    rows: int
    output: str = ""
    epochs: int = 1
    seconds: float = 0.0
    batch_size: int = 512
    shuffle_buffer: int = 50_000
    seed: int = 1
    max_steps: int = 0

    @property
    def passes(self) -> Iterable[int]:
        """A number for each pass of a reader; without end where it has none."""
        return range(self.epochs) if self.epochs else itertools.count()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one task.

    Attributes:
      count: the rows or photos that were written or trained on, or read within the timed part.
      seconds: the time of the work, without imports; of a reader, the timed part.
      cpu: its seconds of CPU, including child processes; None: they were not recorded.
      peak_bytes: its peak memory; None if the system does not provide it.
      classes: the number of records of each class, if a reader read complete epochs.
      scores: the scores of a trained model on the test split: `loss`, `accuracy`, `auc`.
    """

    count: int
    seconds: float
    cpu: float | None
    peak_bytes: float | None
    classes: Mapping[str, int] | None = None
    scores: Mapping[str, float] | None = None

    @property
    def rate(self) -> float:
        """Rows or photos per second."""
        return self.count / self.seconds

    @property
    def cpu_each(self) -> float | None:
        """Seconds of CPU per row or photo."""
        return None if self.cpu is None else self.cpu / self.count


class WorkFailed(Exception):
    """The measured process failed; the message ends with the end of its standard error."""


def measure(task: BenchmarkTask) -> Figures:
    """Performs a task in its own process, which is killed after `LIMIT` seconds.

    Raises:
      WorkFailed: the process failed or was killed.
    """
    command = [sys.executable, "-m", "benchmarks.measure", json.dumps(dataclasses.asdict(task))]
    try:
        worker = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkFailed(f"{task.function}: not done after {LIMIT:g} s") from error
    if worker.returncode:
        raise WorkFailed(f"{task.function}: exit status {worker.returncode}: ...{worker.stderr[-2000:]}")
    return Figures(**json.loads(worker.stdout.splitlines()[-1]))


def conditions(*, real_data: bool) -> dict[str, str]:
    """Describes a measurement that begins now: machine, versions, time, load, and whether the inputs are real."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in cpu if line.startswith("model name"))
    return {
        "processor": next(names, platform.processor()),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "real_data": str(real_data).lower(),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": f"{os.getloadavg()[0]:.1f}",
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def perform(function: Callable[..., Any], task: BenchmarkTask) -> dict[str, Any]:
    """Performs a task. Returns its figures but for the peak of memory."""
    began, cpu = time.perf_counter(), cpu_seconds()
    outcome = function(task, **task.options)
    figures: dict[str, Any] = {"count": task.rows}
    if task.kind == "read" and task.epochs:
        classes = collections.Counter[int]()
        figures = {"count": 0, "classes": classes}
        for labels in outcome:
            figures["count"] += len(labels)
            if labels.dtype != object:  # else they were not parsed
                classes.update(labels.reshape(-1).tolist())
    elif task.kind == "read":
        warm_up = 0
        while warm_up < task.rows:
            warm_up += len(next(outcome))
        began, cpu, figures["count"] = time.perf_counter(), cpu_seconds(), 0
        while time.perf_counter() - began < task.seconds:
            figures["count"] += len(next(outcome))
    elif task.kind == "train":
        figures["scores"] = outcome
    return {**figures, "seconds": time.perf_counter() - began, "cpu": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """Seconds of CPU of this process, of its children that have ended, and of running `multiprocessing` children."""
    total = sum(os.times()[:4])
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def peak_bytes() -> int | None:
    """Returns the peak memory of this program: unlike `ru_maxrss`, without that of the process that started it."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)


if __name__ == "__main__":
    performed = BenchmarkTask(**json.loads(sys.argv[1]))
    module, _, name = performed.function.partition(":")
    candidate = getattr(importlib.import_module(f"benchmarks.candidates.{module}"), name)
    print(json.dumps({**perform(candidate, performed), "peak_bytes": peak_bytes()}), flush=True)
    os._exit(0)  # otherwise, threads of an endless reader would keep the process alive
