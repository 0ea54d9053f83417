"""A measured process: performs one task and prints its figures.

    python -m benchmarks.worker MODULE:FUNCTION TASK_JSON

prints one line of JSON with the names of `benchmarks.measure.Figures`. Importing the module is not part of the task.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import machine
from benchmarks.task import Task


def cpu_seconds() -> float:
    """Seconds of CPU of this process, of its children that have ended, and of running `multiprocessing` children."""
    running = sum(machine.cpu_seconds(child.pid) for child in multiprocessing.active_children())
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + running


def write(function: Callable[[Task], None], task: Task) -> dict[str, Any]:
    """Writes once."""
    begun, cpu = time.perf_counter(), cpu_seconds()
    function(task)
    return {"count": task.rows, "seconds": time.perf_counter() - begun, "cpu": cpu_seconds() - cpu}


def read(function: Callable[[Task], Iterator[Any]], task: Task) -> dict[str, Any]:
    """Reads for `task.seconds`, after a pass that warms up; or for `task.epochs`, and then counts the classes."""
    batches = function(task)
    count, first = 0, time.perf_counter()
    if task.epochs:
        classes: dict[int, int] = {}
        for labels in batches:
            count += len(labels)
            if labels.dtype != object:
                for label in labels.reshape(-1).tolist():
                    classes[label] = classes.get(label, 0) + 1
        return {"count": count, "classes": classes, "seconds": time.perf_counter() - first, "cpu": 0.0}
    warm = 0
    for labels in batches:
        warm += len(labels)
        if warm >= task.rows:
            break
    begun, cpu = time.perf_counter(), cpu_seconds()
    for labels in batches:
        count += len(labels)
        if time.perf_counter() - begun >= task.seconds:
            break
    return {"count": count, "seconds": time.perf_counter() - begun, "cpu": cpu_seconds() - cpu}


def main(argv: list[str]) -> int:
    """Performs the task."""
    name, text = argv
    module, _, function_name = name.partition(":")
    task = Task.from_json(text)
    function = getattr(importlib.import_module(module), function_name)
    figures = (write if task.output else read)(function, task)
    print(json.dumps({**figures, "peak_bytes": machine.peak_bytes()}), flush=True)
    os._exit(0)  # otherwise, threads of an endless reader would keep the process alive


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
