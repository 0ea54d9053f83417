"""This project's reading for training as a measured process, and the same without parsing, which bounds it.

A split of moderate size is read once and held in memory, of images decoded, unless that is switched off. Here it is
switched off where shards are to be read in every epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.task import Task
from schemas.dataset import open_dataset
from trainer.data.input_fn import input_fn, stored_records
from trainer.data.input_options import IMAGE_CACHE_BYTES, InputOptions


def options_of(task: Task) -> InputOptions:
    """Options to read the shards in every epoch."""
    buffer, epochs = task.shuffle_buffer, task.epochs or None
    return InputOptions(batch_size=task.batch_size, shuffle_buffer=buffer, num_epochs=epochs, cache_bytes=0)


def options_held(task: Task) -> InputOptions:
    """Options to hold the split in memory, as training does by default up to a limit."""
    most = InputOptions.cache_bytes if task.table else IMAGE_CACHE_BYTES
    return dataclasses.replace(options_of(task), cache_bytes=most)


def _read(task: Task, options: InputOptions) -> Iterator[np.ndarray]:
    for _, labels in input_fn(open_dataset(task.source), "train", mode="train", options=options):
        yield labels.numpy()


def _read_raw(task: Task, options: InputOptions) -> Iterator[np.ndarray]:
    dataset = open_dataset(task.source)
    records = stored_records(dataset, "train", "train", options)
    batches = records.batch(task.batch_size) if dataset.image_schema else records
    for batch in batches.prefetch(tf.data.AUTOTUNE):
        yield np.empty(batch.shape[0], object)  # their number: copying them to Python costs more than the rest


def read(task: Task) -> Iterator[np.ndarray]:
    """The input of `trainer.task`: shuffled batches of parsed rows, or of decoded, cropped and mirrored images."""
    return _read(task, options_of(task))


def read_held(task: Task) -> Iterator[np.ndarray]:
    """The same, held in memory."""
    return _read(task, options_held(task))


def read_raw(task: Task) -> Iterator[np.ndarray]:
    """Only the records, read and shuffled the same way, in batches, and neither parsed nor decoded.

    For rows, this is the same code without the parser: the same blocks, windows and threads.
    """
    return _read_raw(task, options_of(task))


def read_raw_held(task: Task) -> Iterator[np.ndarray]:
    """The same, held in memory."""
    return _read_raw(task, options_held(task))
