"""Shared by the rivals of TensorFlow 1: a session with queue runners, and passes over the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.task import Task

tf1 = tf.compat.v1


def epochs_of(task: Task) -> Iterable[int]:
    """A number for each pass; without end where the task has none."""
    return range(task.epochs) if task.epochs else itertools.count()


def run_queues(fetches: list[Any]) -> Iterator[np.ndarray]:
    """Runs the default graph's queues and steps until they are empty, and gives the first of what each step fetches."""
    with tf1.Session() as session:
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf1.train.start_queue_runners(session, coordinator)
        try:
            while not coordinator.should_stop():
                yield session.run(fetches)[0]
        except tf.errors.OutOfRangeError:
            pass
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)
