"""A model that notes which records each step reads, and can be killed after a step, for `--model`."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.estimator import tf_estimator


@dataclasses.dataclass(frozen=True)
class Hparams:
    """A folder: its `steps.jsonl` gets a line for each step of each replica.

    Its file `kill_at` holds the step to be killed at, and the signal.
    """

    folder: str = ""


def model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Reads the number `x` of each record, and learns nothing."""
    weight = tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer())
    value = tf.zeros_like(features["x"]) + weight
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions={"value": value})
    if mode == tf_estimator.ModeKeys.EVAL:
        return tf_estimator.EstimatorSpec(mode, loss=tf.reduce_mean(tf.square(value)))
    step = tf.compat.v1.train.get_global_step()
    context = tf.distribute.get_replica_context()

    def note(step: np.ndarray, replica: np.ndarray, ids: np.ndarray) -> np.float32:
        folder = Path(params["folder"])
        line = json.dumps({"step": int(step), "replica": int(replica), "ids": ids.astype(int).tolist()})
        with (folder / "steps.jsonl").open("a") as file:
            file.write(f"{line}\n")
        kill = folder / "kill_at"
        if replica == 0 and kill.exists():
            at, sent = map(int, kill.read_text().split())
            if at == step:
                kill.unlink()
                os.kill(os.getpid(), sent)
        return np.float32(0)

    noted = tf.numpy_function(note, [step, context.replica_id_in_sync_group, features["x"]], tf.float32)
    with tf.control_dependencies([noted]):  # so that every replica has read the step before its update
        loss = tf.reduce_mean(tf.square(tf.identity(value)))
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.0).minimize(loss, step)
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
