"""A compiled Keras model becomes an Estimator by `tf.keras.estimator.model_to_estimator`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.estimator_problem import eval_input, features, train_input
from trainer.estimator import tf_estimator


def _only_x(features: dict[str, tf.Tensor], label: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {"x": features["x"]}, label


@pytest.mark.filterwarnings("ignore:`tf.keras.backend.set_learning_phase` is deprecated")
@pytest.mark.filterwarnings("ignore:`Model.state_updates` will be removed")
def test_trains_evaluates_and_exports(tmp_path: Path) -> None:
    inputs = tf.keras.Input([3], name="x")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, activation="sigmoid", name="probability")(inputs))
    model.compile(tf.keras.optimizers.legacy.Adam(0.1), loss="binary_crossentropy", metrics=["accuracy"])
    estimator = tf.keras.estimator.model_to_estimator(
        model, config=tf_estimator.RunConfig(model_dir=str(tmp_path / "model"), tf_random_seed=1)
    )

    estimator.train(lambda: train_input()().map(_only_x), steps=100)
    metrics = estimator.evaluate(lambda: eval_input()().map(_only_x))
    export = estimator.export_saved_model(
        str(tmp_path / "export"),
        lambda: tf_estimator.export.TensorServingInputReceiver(
            *[tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")] * 2
        ),
    )

    assert metrics["global_step"] == 100
    assert metrics["accuracy"] > 0.95
    served = tf.saved_model.load(export.decode()).signatures["serving_default"](tf.constant(features()["x"]))
    predicted = [row["probability"] for row in estimator.predict(lambda: eval_input()().map(_only_x))]
    np.testing.assert_allclose(served["probability"].numpy(), predicted, rtol=1e-6)
