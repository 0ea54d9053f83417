"""`wide_deep`: a canned linear model over ids and crosses, trained jointly with a deep one (Cheng et al., 2016)."""

from __future__ import annotations

from typing import Any

from trainer.estimator import tf_estimator
from trainer.models import WideDeepHparams
from trainer.models.canned import deep_columns, head, linear_columns, with_prepared_ids
from trainer.models.optimizers import adam
from trainer.spec.task_spec import Ids, TaskSpec


def build(task_spec: TaskSpec, hparams: WideDeepHparams, config: Any) -> Any:
    """A DNNLinearCombinedEstimator: a classifier, or a regressor where the label is a number.

    The wide part reads ids and crosses (numbers, where a dataset has no ids); the deep part reads all but crosses.
    """
    wide = [entry for entry in task_spec.inputs if isinstance(entry, Ids)] or task_spec.inputs
    deep = [entry for entry in task_spec.inputs if not (isinstance(entry, Ids) and entry.crossed)]

    def make(compiled: bool) -> Any:
        return tf_estimator.DNNLinearCombinedEstimator(
            head(task_spec),
            linear_feature_columns=linear_columns(wide, compiled=compiled),
            linear_optimizer=adam(hparams.linear_learning_rate, decay=hparams.decay, max_steps=task_spec.max_steps),
            dnn_feature_columns=deep_columns(
                deep,
                indicator_limit=hparams.indicator_limit,
                embedding_size=hparams.embedding_size,
                compiled=compiled,
            ),
            dnn_optimizer=adam(hparams.learning_rate, decay=hparams.decay, max_steps=task_spec.max_steps),
            dnn_hidden_units=list(hparams.hidden_units),
            dnn_dropout=hparams.dropout or None,
            batch_norm=hparams.batch_norm,
            config=config,
        )

    return with_prepared_ids(make, task_spec)
