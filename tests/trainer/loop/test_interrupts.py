"""A signal whose exception is dropped ends a training, an evaluation and a prediction at the next step."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.interrupts import Terminated, interruptible
from tests.support.processes import InterruptedAndSilent
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.doctor.measure import measure_input
from trainer.doctor.rounds import CLOCK, Length
from trainer.doctor.stages import measured
from trainer.estimator import tf_estimator
from trainer.export.outputs import with_keys_and_classes
from trainer.spec.options import TrainOptions

ModeKeys = tf_estimator.ModeKeys
steps: list[None] = []  # that the model ran


@pytest.fixture(autouse=True)
def no_steps_yet() -> None:
    steps.clear()


def _note() -> np.float32:
    steps.append(None)
    return np.float32(1)


def interrupted_while_built(features: Any, labels: Any, mode: str) -> Any:
    """A model that receives SIGTERM while it is built, where the exception is dropped."""
    InterruptedAndSilent(signal.SIGTERM)
    value = tf.numpy_function(_note, [], tf.float32) * tf.ones_like(next(iter(features.values())), tf.float32)
    train_op = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    return tf_estimator.EstimatorSpec(mode, predictions={"value": value}, loss=tf.reduce_sum(value), train_op=train_op)


@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT])
def test_ends_at_the_next_step(wages, tmp_path, mode):
    own = tf_estimator.Estimator(interrupted_while_built, str(tmp_path / "model"))
    estimator = with_keys_and_classes(own, wages)

    def reader() -> tf.data.Dataset:
        return input_fn(wages, "train", mode=mode, options=InputOptions(batch_size=32))

    run = {
        ModeKeys.TRAIN: lambda: estimator.train(reader, max_steps=10),
        ModeKeys.EVAL: lambda: estimator.evaluate(reader, steps=10),
        ModeKeys.PREDICT: lambda: list(estimator.predict(reader)),
    }
    with pytest.raises(Terminated), interruptible(sigterm=True):
        run[mode]()
    assert steps == []


def test_ends_the_doctors_measurements_of_the_input(wages):
    options = measured(wages, TrainOptions(data_dir=wages.path, model_dir="", batch_size=16))
    turns: list[str] = []

    def tell(turn: str) -> None:
        turns.append(turn)
        InterruptedAndSilent(signal.SIGTERM)

    with pytest.raises(Terminated), interruptible(sigterm=True):
        measure_input(wages, options, Length(seconds=60, rounds=2, steps=5), tell, CLOCK)
    assert len(turns) == 1
