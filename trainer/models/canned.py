"""What the canned models share: their heads, and ids prepared for feature columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import MillraceError
from trainer.estimator import tf_estimator
from trainer.models.feature_columns import prepare
from trainer.spec.task_spec import TaskSpec
from trainer.strategies.tpu import compiles_step


class _BinaryHead(tf_estimator.BinaryClassHead):
    """Two classes. `predictions` leaves out what names them as strings, which no compiled step can hold.

    The class names of a prediction are the dataset's; `trainer.export.outputs` adds them.
    """

    def predictions(self, logits: tf.Tensor, keys: Sequence[str] | None = None) -> dict[str, tf.Tensor]:
        named = super().predictions(logits, keys or ["logits", "logistic", "probabilities", "class_ids"])
        return dict(named)


class _MultiClassHead(tf_estimator.MultiClassHead):
    """Three classes or more, likewise."""

    def predictions(self, logits: tf.Tensor, keys: Sequence[str] | None = None) -> dict[str, tf.Tensor]:
        return dict(super().predictions(logits, keys or ["logits", "probabilities", "class_ids"]))


def head(task_spec: TaskSpec) -> Any:
    """The head of a canned Estimator: loss, metrics and predictions that follow from the label."""
    if task_spec.classes is None:
        return tf_estimator.RegressionHead(weight_column=task_spec.weight)
    if task_spec.classes == 2:
        return _BinaryHead(weight_column=task_spec.weight)
    return _MultiClassHead(task_spec.classes, weight_column=task_spec.weight)


def with_prepared_ids(make: Callable[[bool], Any], task_spec: TaskSpec) -> Any:
    """An Estimator whose features are brought into the form that feature columns read (see `feature_columns.prepare`).

    Args:
      make: makes the Estimator, given whether its columns are for a step that XLA compiles.
      task_spec: names the features.
    """
    usual = make(False)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        compiled = compiles_step(mode, config)
        estimator = make(True) if compiled else usual
        build = tf.autograph.experimental.do_not_convert(estimator.model_fn)  # its layers are of graphs already
        return build(prepare(features, task_spec.inputs, compiled=compiled), labels, mode, config)

    return tf_estimator.Estimator(model_fn, config=usual.config)


def classes_of(task_spec: TaskSpec, model: str) -> int:
    """The number of classes.

    Raises:
      MillraceError: the label is a number.
    """
    if task_spec.classes is None:
        raise MillraceError(
            f"model {model!r} is for classification, but the label {task_spec.label!r} is a number; use dnn or linear"
        )
    return task_spec.classes
