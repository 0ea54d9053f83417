"""TPUEstimator off TPUs: the same model_fn, trained and evaluated on CPU with use_tpu=False."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.estimator_problem import eval_input, logistic_model_fn, train_input
from trainer.estimator import tf_estimator


def _accuracy(labels: tf.Tensor, probability: tf.Tensor) -> dict[str, Any]:
    return {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.cast(probability > 0.5, tf.int64))}


def _model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    spec = logistic_model_fn(features, labels, mode, params)
    of_eval = (_accuracy, [labels, spec.predictions["probability"]]) if mode == tf_estimator.ModeKeys.EVAL else None
    return tf_estimator.tpu.TPUEstimatorSpec(mode, spec.predictions, spec.loss, spec.train_op, eval_metrics=of_eval)


def test_trains_evaluates_and_predicts_without_a_tpu(tmp_path: Path) -> None:
    estimator = tf_estimator.tpu.TPUEstimator(
        _model_fn,
        config=tf_estimator.tpu.RunConfig(
            model_dir=str(tmp_path), tpu_config=tf_estimator.tpu.TPUConfig(iterations_per_loop=10)
        ),
        params={"learning_rate": 0.5},
        use_tpu=False,
        train_batch_size=32,
        eval_batch_size=64,
        predict_batch_size=64,
    )

    estimator.train(lambda params: train_input(batch_size=params["batch_size"])(), max_steps=60)
    metrics = estimator.evaluate(lambda params: eval_input()(), steps=4)
    predictions = list(estimator.predict(lambda params: eval_input()()))

    assert metrics["global_step"] == 60
    assert metrics["accuracy"] > 0.95
    assert len(predictions) == 256


def test_tpu_embeddings_are_refused() -> None:
    from tensorflow.python.tpu import tpu_embedding

    with pytest.raises(NotImplementedError, match="AdagradParameters: TPU embeddings are not supported"):
        tpu_embedding.AdagradParameters(0.1)
