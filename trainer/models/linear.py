"""`linear`: a canned linear model, one weight for each number and for each id."""

from __future__ import annotations

from typing import Any

from trainer.estimator import tf_estimator
from trainer.models import LinearHparams
from trainer.models.canned import label_settings, with_prepared_ids
from trainer.models.feature_columns import linear_columns
from trainer.models.optimizers import adam
from trainer.spec.task_spec import TaskSpec


def build(task_spec: TaskSpec, hparams: LinearHparams, config: Any) -> Any:
    """A LinearClassifier, or a LinearRegressor where the label is a number."""
    make = tf_estimator.LinearRegressor if task_spec.classes is None else tf_estimator.LinearClassifier
    estimator = make(
        feature_columns=linear_columns(task_spec.inputs),
        optimizer=adam(hparams.learning_rate, decay=hparams.decay, max_steps=task_spec.max_steps),
        config=config,
        **label_settings(task_spec),
    )
    return with_prepared_ids(estimator, task_spec)
