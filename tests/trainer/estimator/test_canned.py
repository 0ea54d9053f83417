"""The canned Estimators train, evaluate and predict on the installed TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.exports.session import plain_session
from tests.support.estimator_problem import ROWS, eval_input, feature_columns, train_input
from trainer.estimator import tf_estimator


def _build(name: str, model_dir: Path, **options: Any) -> Any:
    """A canned Estimator by its class's name, with Adam throughout."""
    wide, deep = feature_columns()
    config = tf_estimator.RunConfig(
        model_dir=str(model_dir), tf_random_seed=1, save_summary_steps=1000, session_config=plain_session()
    )
    if name.startswith("DNNLinearCombined"):
        columns: dict[str, Any] = {
            "linear_feature_columns": wide,
            "linear_optimizer": "Adam",
            "dnn_feature_columns": deep,
            "dnn_hidden_units": [16],
            "dnn_optimizer": "Adam",
        }
    elif name.startswith("DNN"):
        columns = {"feature_columns": deep, "hidden_units": [16], "optimizer": "Adam"}
    else:
        columns = {"feature_columns": wide, "optimizer": "Adam"}
    return getattr(tf_estimator, name)(config=config, **columns, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "label", "metric", "least", "most"),
    [
        ("LinearClassifier", "sign", "accuracy", 0.9, 1.0),
        ("DNNClassifier", "sign", "auc", 0.95, 1.0),
        ("DNNClassifier", "thirds", "accuracy", 0.55, 1.0),
        ("DNNLinearCombinedClassifier", "thirds", "accuracy", 0.55, 1.0),
        ("LinearRegressor", "sum", "average_loss", 0.0, 2.5),
        ("DNNRegressor", "sum", "average_loss", 0.0, 1.0),
        ("DNNLinearCombinedRegressor", "sum", "average_loss", 0.0, 1.0),
    ],
)
def test_trains_and_evaluates(*, tmp_path: Path, name: str, label: str, metric: str, least: float, most: float) -> None:
    estimator = _build(name, tmp_path, **({"n_classes": 3} if label == "thirds" else {}))
    estimator.train(train_input(label), steps=150)

    metrics = estimator.evaluate(eval_input(label))

    assert metrics["global_step"] == 150
    assert least <= metrics[metric] <= most


def test_predicts_classes_under_their_names_with_probabilities(tmp_path: Path) -> None:
    estimator = _build("LinearClassifier", tmp_path, n_classes=2)
    estimator.train(train_input(), steps=100)

    predictions = list(estimator.predict(eval_input()))

    assert len(predictions) == ROWS
    for prediction in predictions[:10]:
        assert prediction["classes"] == [str(prediction["probabilities"].argmax()).encode()]
        assert prediction["probabilities"].sum() == pytest.approx(1.0)


@pytest.mark.slow
def test_warm_start_takes_a_hidden_layer_from_another_estimator(tmp_path: Path) -> None:
    first = _build("DNNClassifier", tmp_path / "first").train(train_input(), steps=20)

    second = _build(
        "DNNRegressor",
        tmp_path / "second",
        warm_start_from=tf_estimator.WarmStartSettings(
            first.latest_checkpoint(), vars_to_warm_start=".*hiddenlayer_0.*kernel:0"
        ),
    )
    second.train(train_input("sum"), steps=1)

    # One step of Adam at its default rate moves no weight by more than that rate.
    kernel = "dnn/hiddenlayer_0/kernel"
    np.testing.assert_allclose(second.get_variable_value(kernel), first.get_variable_value(kernel), atol=0.0011)
