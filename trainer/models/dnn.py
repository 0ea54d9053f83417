"""`dnn`: a canned deep model over numbers, indicators and embeddings."""

from __future__ import annotations

from typing import Any

from trainer.estimator import tf_estimator
from trainer.models import DnnHparams
from trainer.models.canned import deep_columns, head, with_prepared_ids
from trainer.models.optimizers import adam
from trainer.spec.task_spec import TaskSpec


def build(task_spec: TaskSpec, hparams: DnnHparams, config: Any) -> Any:
    """A DNNEstimator: a classifier, or a regressor where the label is a number."""

    def make(compiled: bool) -> Any:
        return tf_estimator.DNNEstimator(
            head(task_spec),
            feature_columns=deep_columns(
                task_spec.inputs,
                indicator_limit=hparams.indicator_limit,
                embedding_size=hparams.embedding_size,
                compiled=compiled,
            ),
            hidden_units=list(hparams.hidden_units),
            optimizer=adam(hparams.learning_rate, decay=hparams.decay, max_steps=task_spec.max_steps),
            dropout=hparams.dropout or None,
            batch_norm=hparams.batch_norm,
            config=config,
        )

    return with_prepared_ids(make, task_spec)
