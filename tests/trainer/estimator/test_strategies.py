"""Replicas by MirroredStrategy on two logical CPUs of one process, and TPUEstimator without a TPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.estimator_problem import eval_input, logistic_model_fn, train_input
from trainer.estimator import tf_estimator

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_two_replicas_train_one_model(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.estimator_problem", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-5000:]
    result = json.loads(run.stdout)
    assert result["weights_on"] == ["CPU:0", "CPU:1"]
    assert result["global_step"] == 60
    assert result["loss"][1] < result["loss"][0]
    assert result["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("train_distribute", "OneDeviceStrategy on several machines is not supported"),
        ("experimental_distribute", "pass train_distribute and eval_distribute"),
    ],
)
def test_a_strategy_over_several_machines_is_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, message: str
) -> None:
    cluster = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))

    with pytest.raises(NotImplementedError, match=message):
        tf_estimator.RunConfig(**{option: tf.distribute.OneDeviceStrategy("/cpu:0")})


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
