"""A model for a search: how well a trial does, and how it ends, follows from its hyper-parameters."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support import own_models
from trainer.estimator import tf_estimator


@dataclasses.dataclass(frozen=True)
class Hparams:
    """`fate`: fine, nan, killed, or slow, whose steps take 20 ms each."""

    learning_rate: float = 0.05
    fate: str = "fine"


def model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Logistic regression on two numbers."""
    spec = own_models.model_fn(features, labels, mode, params)
    if mode != tf_estimator.ModeKeys.TRAIN or params["fate"] == "fine":
        return spec
    before = {"nan": _nothing, "killed": _killed, "slow": _pause}[params["fate"]]
    with tf.control_dependencies([tf.numpy_function(before, [], tf.float32)]):
        factor = tf.constant(float("nan") if params["fate"] == "nan" else 1.0)
        return spec._replace(loss=spec.loss * factor)


def _nothing() -> np.float32:
    return np.float32(0)


def _killed() -> np.float32:
    os.kill(os.getpid(), signal.SIGKILL)
    return np.float32(0)


def _pause() -> np.float32:
    time.sleep(0.02)
    return np.float32(0)
