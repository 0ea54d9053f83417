"""This project's reading for training as a measured process, and the same without parsing, which bounds it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.task import Task
from schemas.dataset import open_dataset
from trainer.inputs import InputOptions, input_fn, shuffled


def _options(task: Task) -> InputOptions:
    return InputOptions(
        batch_size=task.batch_size,
        shuffle_buffer=task.shuffle_buffer,
        num_epochs=task.epochs or None,
        drop_remainder=False,
    )


def read(task: Task) -> Iterator[np.ndarray]:
    """What `trainer.task` feeds to a model: shuffled, parsed (or decoded, cropped and mirrored) batches."""
    for _, labels in input_fn(open_dataset(task.source), "train", mode="train", options=_options(task)):
        yield labels.numpy()


def read_raw(task: Task) -> Iterator[np.ndarray]:
    """The train split's records, read and shuffled the same way, in batches, and neither parsed nor decoded."""
    dataset, options = open_dataset(task.source), _options(task)
    columns = dataset.image_schema is None
    records = shuffled(dataset.shards("train"), dataset.compression, options, in_blocks=columns)
    records = records.repeat(options.num_epochs)
    batches = records.rebatch(task.batch_size) if columns else records.batch(task.batch_size)
    for batch in batches.prefetch(tf.data.AUTOTUNE):
        yield np.empty(
            batch.shape[0], object
        )  # how many; to copy the records to Python would cost more than all the rest
