"""Predictions of a checkpoint on a split, where an evaluation did not give them, or on rows that were changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.report.hook import AnyCollector, add_batch, new_collector
from trainer.strategies.run_config import as_exported

ModeKeys = tf_estimator.ModeKeys


def predictor(estimator: Any, checkpoint: str) -> Callable[[Callable[[], tf.data.Dataset]], Iterator[dict[str, Any]]]:
    """A function from an `input_fn` to the predictions of its batches, as `with_keys_and_classes` names them."""

    def predict(read: Callable[[], tf.data.Dataset]) -> Iterator[dict[str, Any]]:
        found: Iterator[dict[str, Any]] = as_exported(estimator).predict(
            read, checkpoint_path=checkpoint, yield_single_examples=False
        )
        return found

    return predict


def predicted_again(
    estimator: Any, checkpoint: str, dataset: Dataset, split: str, options: InputOptions, *, steps: int | None
) -> AnyCollector:
    """The predictions of a model that gives none in EVAL: by PREDICT, beside the labels that are read once more.

    Args:
      estimator: one that `with_keys_and_classes` wraps.
      checkpoint: whose variables predict.
      dataset: the dataset.
      split: the split that is predicted.
      options: how it is read, in batches of the same size as in the evaluation.
      steps: how many batches are predicted; None: all.
    """

    def read(mode: str) -> tf.data.Dataset:
        batches = input_fn(dataset, split, mode=mode, options=options)
        return batches if steps is None else batches.take(steps)

    collector = new_collector(dataset)
    weight = None if dataset.image_schema is not None else dataset.schema.weight
    truth: list[dict[str, Any]] = []  # of all rows first: between two predictions, the Estimator's graph is the default
    for features, labels in read(ModeKeys.EVAL):
        weights = {} if weight is None else {"weights": features[weight.name].numpy()}
        truth.append({"labels": labels.numpy(), **weights})
    predictions = predictor(estimator, checkpoint)(lambda: read(ModeKeys.PREDICT))
    for known, predicted in zip(truth, predictions, strict=True):
        add_batch(collector, {**known, **predicted})
    return collector


def first_rows(dataset: Dataset, split: str, options: InputOptions) -> tf.data.Dataset:
    """(features, labels) of the first `options.batch_size` rows of a split, in one batch."""
    return input_fn(dataset, split, mode=ModeKeys.EVAL, options=options).take(1)
