"""Millrace's reading for training, and the same without parsing, which bounds it.

A split of moderate size is read once and stays in memory, of photos decoded, where `in_memory` is set, as training does
by default up to a limit. Otherwise the shards are read in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.measure import BenchmarkTask
from schemas.dataset import open_dataset
from trainer.data.input_fn import input_fn, stored_records
from trainer.data.input_options import IMAGE_CACHE_BYTES, InputOptions


def _options(task: BenchmarkTask, *, in_memory: bool) -> InputOptions:
    limit = InputOptions.cache_bytes if task.table else IMAGE_CACHE_BYTES
    return InputOptions(
        batch_size=task.batch_size,
        shuffle_buffer=task.shuffle_buffer,
        num_epochs=task.epochs or None,
        cache_bytes=limit if in_memory else 0,
    )


def read(task: BenchmarkTask, *, in_memory: bool = False) -> Iterator[np.ndarray]:
    """The input of a training: shuffled batches of parsed rows, or of decoded, cropped and mirrored photos."""
    options = _options(task, in_memory=in_memory)
    for _, labels in input_fn(open_dataset(task.source), "train", mode="train", options=options):
        yield labels.numpy()


def read_raw(task: BenchmarkTask, *, in_memory: bool = False) -> Iterator[np.ndarray]:
    """Only the records, by the same blocks, windows and threads, in batches that are neither parsed nor decoded."""
    dataset = open_dataset(task.source)
    records = stored_records(dataset, "train", "train", _options(task, in_memory=in_memory))
    batches = records.batch(task.batch_size) if dataset.image_schema else records
    for batch in batches.prefetch(tf.data.AUTOTUNE):
        yield np.empty(batch.shape[0], object)  # their number: copying them to Python costs more than the rest
