"""Tasks for the tests of measurements; they import nothing heavy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.rivals.tar_workers import Batch, batches
from benchmarks.task import Task


def write(task: Task) -> None:
    """Holds 100 MB and writes a file."""
    held = np.ones(100 << 20, np.uint8)
    (Path(task.output) / "done").write_text(str(held.sum()))


def burn(connection: Connection, seconds: float) -> None:
    """Uses this many seconds of CPU, reports that, and waits to be killed."""
    while time.process_time() < seconds:
        np.sort(np.random.default_rng().random(100_000))
    connection.send_bytes(b"done")
    time.sleep(3600)


def fail(task: Task) -> None:
    """Fails."""
    raise OSError("the disk is full")


def hang(task: Task) -> None:
    """Does not end."""
    time.sleep(3600)


def read_shards(task: Task) -> Iterator[np.ndarray]:
    """Labels that are the shards' names; each shard is read by one process, slowly."""

    def pipeline(shards: list[str], shuffle: int) -> Iterator[Batch]:
        for path in shards[int(os.environ["WORKER"]) :: int(os.environ["NUM_WORKERS"])]:
            np.sort(np.random.default_rng().random(300_000))
            labels = np.full(task.batch_size, int(Path(path).stem))
            yield np.tile(labels, (2, 1)).T, labels

    for values, labels in batches(task, pipeline):
        assert np.array_equal(values, np.stack([labels, labels], axis=1))
        yield labels


def read_badly(task: Task) -> Iterator[np.ndarray]:
    """Fails in the processes that read."""

    def pipeline(shards: list[str], shuffle: int) -> Iterator[Batch]:
        raise OSError("no such shard")
        yield

    for _, labels in batches(task, pipeline):
        yield labels
