"""A linear model that, while it is trained, damages a shard that is being read, or its own weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator


@dataclasses.dataclass(frozen=True)
class Hparams:
    """Which file, and how: cut, cut_between_records, flipped, removed; or nan, which needs no file."""

    shard: str = ""
    how: str = "cut"
    at_step: int = 30


class Damage(tf.compat.v1.train.SessionRunHook):
    """Does it once, when the step has come."""

    def __init__(self, shard: Path, how: str, at_step: int) -> None:
        self._shard, self._how, self._at_step = shard, how, at_step

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.run(tf.compat.v1.train.get_global_step()) != self._at_step:
            return
        if self._how == "removed":
            self._shard.unlink()
            return
        records = list(tf.compat.v1.io.tf_record_iterator(str(self._shard)))
        content = bytearray(self._shard.read_bytes())
        last = len(records[-1]) + 16  # a record's length and both of its checksums
        match self._how:
            case "cut":
                self._shard.write_bytes(content[:-5])
            case "cut_between_records":
                self._shard.write_bytes(content[:-last])
            case "flipped":
                content[-last // 2] ^= 1
                self._shard.write_bytes(content)


def model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Logistic regression on two numbers."""
    inputs = tf.stack([features["age"], features["hours"]], axis=1)
    logits = tf.squeeze(tf.keras.layers.Dense(1)(inputs), axis=1)
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.compat.v1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, logits > 0)}
        return tf_estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    step = tf.compat.v1.train.get_global_step()
    if params["how"] == "nan":  # the update that step 39 makes, so that the weights saved at step 40 would be NaN
        loss = loss * tf.where(step >= params["at_step"] + 9, float("nan"), 1.0)
        return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=_optimizer().minimize(loss, step))
    damage = Damage(Path(params["shard"]), params["how"], params["at_step"])
    train_op = _optimizer().minimize(loss, step)
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[damage])


def _optimizer() -> Any:
    return tf.compat.v1.train.GradientDescentOptimizer(0.05)
