"""Millrace's reading for training, the same without parsing, which bounds it, and its training with default settings.

A split of moderate size is read once and stays in memory, of photos decoded, where `in_memory` is set, as training does
by default up to a limit. Otherwise the shards are read in every epoch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import millrace
from benchmarks.measure import BenchmarkTask
from schemas.dataset import open_dataset
from trainer.data.input_fn import input_fn, stored_records
from trainer.data.input_options import IMAGE_CACHE_BYTES, InputOptions

SCORES = {"loss": "average_loss", "accuracy": "accuracy", "auc": "auc"}


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


def train(task: BenchmarkTask, *, model: str | None = None) -> dict[str, float]:
    """Trains a model, by default the one that Millrace chooses. Returns its scores on the test split."""
    options: dict[str, Any] = {}
    if task.max_steps and model != "boosted_trees":  # trees are grown as a whole
        options["max_steps"] = task.max_steps
    with tempfile.TemporaryDirectory() as folder:
        trained = millrace.train(
            data_dir=f"{task.source}/data",
            model_dir=f"{folder}/model",
            model=model,
            seed=task.seed,
            evaluate_test=True,
            quiet=True,
            **options,
        )
    metrics = trained.metrics["test"]
    return {score: float(metrics[name]) for score, name in SCORES.items() if name in metrics}
