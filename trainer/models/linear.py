"""`linear`: a canned linear model, one weight for each number and for each id."""

from __future__ import annotations

from typing import Any

from trainer.estimator import tf_estimator
from trainer.models import LinearHparams
from trainer.models.canned import head, linear_columns, with_prepared_ids
from trainer.models.optimizers import adam
from trainer.spec.task_spec import TaskSpec


def build(task_spec: TaskSpec, hparams: LinearHparams, config: Any) -> Any:
    """A LinearEstimator: a classifier, or a regressor where the label is a number."""

    def make(compiled: bool) -> Any:
        return tf_estimator.LinearEstimator(
            head(task_spec),
            feature_columns=linear_columns(task_spec.inputs, compiled=compiled),
            optimizer=adam(hparams.learning_rate, decay=hparams.decay, max_steps=task_spec.max_steps),
            config=config,
        )

    return with_prepared_ids(make, task_spec)
