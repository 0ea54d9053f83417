"""What the canned models share: the choice of classifier or regressor, and ids prepared for feature columns."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from schemas.errors import MillraceError
from trainer.estimator import tf_estimator
from trainer.models.feature_columns import prepare
from trainer.spec.task_spec import TaskSpec


def label_settings(task_spec: TaskSpec) -> dict[str, Any]:
    """Keyword arguments of a canned Estimator that follow from the label."""
    settings: dict[str, Any] = {"weight_column": task_spec.weight}
    if task_spec.classes is not None:
        settings["n_classes"] = task_spec.classes
    return settings


def with_prepared_ids(estimator: Any, task_spec: TaskSpec) -> Any:
    """The same Estimator, its features brought into the form that feature columns read (see `columns.prepare`)."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        build = tf.autograph.experimental.do_not_convert(estimator.model_fn)  # its layers are of graphs already
        return build(prepare(features, task_spec.inputs), labels, mode, config)

    return tf_estimator.Estimator(model_fn, config=estimator.config)


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
