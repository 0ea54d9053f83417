"""A measured process: `python -m benchmarks.worker TASK_JSON` performs one task, and prints its figures as JSON.

Importing the candidate's module is not part of the task.
"""

from __future__ import annotations

import collections
import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.task import Task


def perform(function: Callable[..., Any], task: Task) -> dict[str, Any]:
    """Performs a task. Returns the figures that this process can tell by itself."""
    if task.kind == "read" and not task.epochs:
        return read_for_seconds(function(task, **task.options), task)
    began, cpu = time.perf_counter(), cpu_seconds()
    outcome = function(task, **task.options)
    figures: dict[str, Any] = {"count": task.rows}
    if task.kind == "read":
        figures = count_classes(outcome)
    elif task.kind == "train":
        figures["scores"] = outcome
    return {**figures, "seconds": time.perf_counter() - began, "cpu": cpu_seconds() - cpu}


def read_for_seconds(batches: Any, task: Task) -> dict[str, Any]:
    """Reads for `task.seconds`, after a pass that warms up."""
    warm_up = count = 0
    for labels in batches:
        warm_up += len(labels)
        if warm_up >= task.rows:
            break
    began, cpu = time.perf_counter(), cpu_seconds()
    for labels in batches:
        count += len(labels)
        if time.perf_counter() - began >= task.seconds:
            break
    return {"count": count, "seconds": time.perf_counter() - began, "cpu": cpu_seconds() - cpu}


def count_classes(batches: Any) -> dict[str, Any]:
    """Reads all batches, and counts the records, and those of each class where labels were parsed."""
    count, classes = 0, collections.Counter[int]()
    for labels in batches:
        count += len(labels)
        if labels.dtype != object:
            classes.update(labels.reshape(-1).tolist())
    return {"count": count, "classes": classes}


def cpu_seconds() -> float:
    """Seconds of CPU of this process, of its children that have ended, and of running `multiprocessing` children."""
    total = sum(os.times()[:4])
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def peak_bytes() -> int | None:
    """The peak memory of this program so far: unlike `ru_maxrss`, without that of the process that started it."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)


def main(argv: list[str]) -> int:
    """Performs the task."""
    task = Task.from_json(argv[0])
    module, _, name = task.function.partition(":")
    function = getattr(importlib.import_module(f"benchmarks.candidates.{module}"), name)
    print(json.dumps({**perform(function, task), "peak_bytes": peak_bytes()}), flush=True)
    os._exit(0)  # otherwise, threads of an endless reader would keep the process alive


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
