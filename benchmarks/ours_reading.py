"""This project's reading for training as a measured process, and the same without parsing, which bounds it.

A CSV split of moderate size is read once and held in memory, unless that is switched off, as it is here where it is to
be read from its shards in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.task import Task
from schemas.dataset import open_dataset
from trainer.data.input_fn import input_fn, stored_records
from trainer.data.input_options import InputOptions


def options_of(task: Task) -> InputOptions:
    """From the shards in every epoch."""
    buffer, epochs = task.shuffle_buffer, task.epochs or None
    return InputOptions(batch_size=task.batch_size, shuffle_buffer=buffer, num_epochs=epochs, cache_bytes=0)


def options_held(task: Task) -> InputOptions:
    """In memory after the first, which is what training does by default up to a size."""
    return InputOptions(batch_size=task.batch_size, shuffle_buffer=task.shuffle_buffer, num_epochs=task.epochs or None)


def _read(task: Task, options: InputOptions) -> Iterator[np.ndarray]:
    for _, labels in input_fn(open_dataset(task.source), "train", mode="train", options=options):
        yield labels.numpy()


def _read_raw(task: Task, options: InputOptions) -> Iterator[np.ndarray]:
    dataset = open_dataset(task.source)
    records = stored_records(dataset, "train", "train", options)
    batches = records.batch(task.batch_size) if dataset.image_schema else records
    for batch in batches.prefetch(tf.data.AUTOTUNE):
        yield np.empty(batch.shape[0], object)  # how many: to copy them to Python would cost more than all the rest


def read(task: Task) -> Iterator[np.ndarray]:
    """What `trainer.task` feeds to a model: shuffled, parsed (or decoded, cropped and mirrored) batches."""
    return _read(task, options_of(task))


def read_held(task: Task) -> Iterator[np.ndarray]:
    """The same, held in memory."""
    return _read(task, options_held(task))


def read_raw(task: Task) -> Iterator[np.ndarray]:
    """The records alone, read and shuffled the same way, in batches, and neither parsed nor decoded.

    Of rows this is the same code with the parser left out: the same blocks, windows and threads.
    """
    return _read_raw(task, options_of(task))


def read_raw_held(task: Task) -> Iterator[np.ndarray]:
    """The same, held in memory."""
    return _read_raw(task, options_held(task))
