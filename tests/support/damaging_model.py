"""A linear model that damages a shard that is being read, or its own weights, during training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support import own_models
from trainer.estimator import tf_estimator

LEARNING_RATE = 0.05


@dataclasses.dataclass(frozen=True)
class Hparams:
    """Which file, and how: cut, cut_between_records, flipped, removed; or nan, which needs no file."""

    shard: str = ""
    how: str = "cut"
    at_step: int = 30


class Damage(tf.compat.v1.train.SessionRunHook):
    """Does the damage once, at its step."""

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
    """Logistic regression on two numbers, with the damage."""
    spec = own_models.model_fn(features, labels, mode, {"learning_rate": LEARNING_RATE})
    if mode != tf_estimator.ModeKeys.TRAIN:
        return spec
    if params["how"] != "nan":
        return spec._replace(training_hooks=[Damage(Path(params["shard"]), params["how"], params["at_step"])])
    # The update that step 39 makes, so that the weights saved at step 40 would be NaN.
    step = tf.compat.v1.train.get_global_step()
    loss = spec.loss * tf.where(step >= params["at_step"] + 9, float("nan"), 1.0)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(LEARNING_RATE)
    return spec._replace(loss=loss, train_op=optimizer.minimize(loss, step))
