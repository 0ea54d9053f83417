"""Estimators with a model_fn of one's own: modes, checkpoints, hooks, warm start, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.estimator_problem import (
    ROWS,
    eval_input,
    features,
    logistic_estimator,
    logistic_model_fn,
    scalars,
    serving_input,
    train_input,
)
from trainer.estimator import tf_estimator


class Recorder(tf_estimator.SessionRunHook):
    """Notes what a session calls it for, and the global step of each run."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.steps: list[int] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append("after_create_session")

    def before_run(self, run_context: Any) -> Any:
        return tf_estimator.SessionRunArgs(tf.compat.v1.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps.append(int(run_values.results))

    def end(self, session: Any) -> None:
        self.calls.append("end")


def test_trains_evaluates_and_predicts(tmp_path: Path) -> None:
    estimator = logistic_estimator(tmp_path)
    before = estimator.train(train_input(), steps=1).evaluate(eval_input())

    after = estimator.train(train_input(), steps=99).evaluate(eval_input())
    probabilities = np.array([p["probability"] for p in estimator.predict(eval_input())])

    assert (before["global_step"], after["global_step"]) == (1, 100)
    assert after["loss"] < before["loss"]
    assert after["accuracy"] >= 0.95
    assert ((probabilities > 0.5) == (features()["x"].sum(axis=1) > 0)).mean() == pytest.approx(after["accuracy"])


def test_resumes_from_the_last_checkpoint_in_the_model_dir(tmp_path: Path) -> None:
    logistic_estimator(tmp_path).train(train_input(), steps=20)

    again = logistic_estimator(tmp_path)
    again.train(train_input(), max_steps=30)
    again.train(train_input(), max_steps=30)  # already there: nothing to do

    assert again.latest_checkpoint() == str(tmp_path / "model.ckpt-30")
    assert again.get_variable_value("global_step") == 30


def test_keeps_the_number_of_checkpoints_asked_for(tmp_path: Path) -> None:
    logistic_estimator(tmp_path, save_checkpoints_steps=5, keep_checkpoint_max=2).train(train_input(), steps=20)

    assert sorted(path.name for path in tmp_path.glob("*.index")) == ["model.ckpt-15.index", "model.ckpt-20.index"]


def test_calls_training_hooks_at_every_step(tmp_path: Path) -> None:
    passed, of_spec = Recorder(), Recorder()

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        return logistic_model_fn(features, labels, mode, params)._replace(training_hooks=[of_spec])

    logistic_estimator(tmp_path, model_fn=model_fn).train(train_input(), steps=10, hooks=[passed])

    for hook in (passed, of_spec):
        assert hook.calls == ["begin", "after_create_session", "end"]
        assert len(hook.steps) == 10


def test_calls_evaluation_hooks_for_every_batch(tmp_path: Path) -> None:
    passed, of_spec = Recorder(), Recorder()

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        return logistic_model_fn(features, labels, mode, params)._replace(evaluation_hooks=[of_spec])

    estimator = logistic_estimator(tmp_path, model_fn=model_fn).train(train_input(), steps=3)
    estimator.evaluate(eval_input(), hooks=[passed])

    for hook in (passed, of_spec):
        assert hook.calls == ["begin", "after_create_session", "end"]
        assert hook.steps == [3] * (ROWS // 64)


def test_evaluates_in_the_training_process_by_a_hook(tmp_path: Path) -> None:
    estimator = logistic_estimator(tmp_path)
    evaluate = tf_estimator.experimental.InMemoryEvaluatorHook(estimator, eval_input(), every_n_iter=10)

    estimator.train(train_input(), steps=20, hooks=[evaluate])

    losses = scalars(tmp_path / "eval", "loss")
    assert losses[20] < min(losses[step] for step in losses if step < 20)


def test_checkpoint_saver_calls_its_listeners(tmp_path: Path) -> None:
    saved: list[int] = []

    class Listener(tf_estimator.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            saved.append(global_step_value)

    saver = tf_estimator.CheckpointSaverHook(str(tmp_path), save_steps=4, listeners=[Listener()])
    logistic_estimator(tmp_path).train(train_input(), steps=10, hooks=[saver])

    assert saved == [0, 4, 8, 10]


def test_a_nan_loss_stops_training(tmp_path: Path) -> None:
    estimator = logistic_estimator(tmp_path, learning_rate=float("nan"))

    with pytest.raises(tf_estimator.NanLossDuringTrainingError, match="NaN loss"):
        estimator.train(train_input(), steps=5)


def test_warm_start_takes_the_named_variables_only(tmp_path: Path) -> None:
    first = logistic_estimator(tmp_path / "first").train(train_input(), steps=50)
    settings = tf_estimator.WarmStartSettings(first.latest_checkpoint(), vars_to_warm_start=".*weights")

    second = logistic_estimator(tmp_path / "second", learning_rate=0.0, warm_start_from=settings)
    second.train(train_input(), steps=1)

    weights = "logistic/weights"
    np.testing.assert_array_equal(second.get_variable_value(weights), first.get_variable_value(weights))
    assert first.get_variable_value("logistic/bias") != 0
    assert second.get_variable_value("logistic/bias") == 0
    assert second.get_variable_value("global_step") == 1


def test_an_exported_model_predicts_what_the_estimator_predicts(tmp_path: Path) -> None:
    estimator = logistic_estimator(tmp_path / "model").train(train_input(), steps=50)

    export = estimator.export_saved_model(str(tmp_path / "export"), serving_input)

    serve = tf.saved_model.load(export.decode()).signatures["serving_default"]
    served = serve(**{name: tf.constant(values) for name, values in features().items()})
    expected = [prediction["probability"] for prediction in estimator.predict(eval_input())]
    np.testing.assert_allclose(served["probability"].numpy(), expected, rtol=1e-6)
