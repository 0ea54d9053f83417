"""A model that notes which records each step reads, and can be killed after a step, for `--model`."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.estimator import tf_estimator


@dataclasses.dataclass(frozen=True)
class Hparams:
    """A folder: its `steps.jsonl` gets a line for each step; its file `kill_at` holds the step to be killed at."""

    folder: str = ""


def model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Reads the number `x` of each record, and learns nothing."""
    weight = tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer())
    value = tf.zeros_like(features["x"]) + weight
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions={"value": value})
    loss = tf.reduce_mean(tf.square(value))
    if mode == tf_estimator.ModeKeys.EVAL:
        return tf_estimator.EstimatorSpec(mode, loss=loss)
    step = tf.compat.v1.train.get_global_step()

    def note(step: np.ndarray, ids: np.ndarray) -> np.float32:
        folder = Path(params["folder"])
        with (folder / "steps.jsonl").open("a") as file:
            file.write(json.dumps({"step": int(step), "ids": ids.astype(int).tolist()}) + "\n")
        kill = folder / "kill_at"
        if kill.exists() and int(kill.read_text()) == step:
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.float32(0)

    noted = tf.numpy_function(note, [step, features["x"]], tf.float32)
    with tf.control_dependencies([noted]):
        train_op = tf.compat.v1.assign_add(step, 1)
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
