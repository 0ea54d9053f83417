"""train_and_evaluate on one machine: evaluation at checkpoints, exporters, early stopping, resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.estimator_problem import (
    eval_input,
    features,
    logistic_estimator,
    scalars,
    serving_input,
    train_input,
)
from trainer.estimator import tf_estimator


def _train_and_evaluate(estimator: Any, *, max_steps: int, exporters: Any = None, hooks: Any = ()) -> tuple[Any, Any]:
    return tf_estimator.train_and_evaluate(
        estimator,
        tf_estimator.TrainSpec(train_input(), max_steps=max_steps, hooks=hooks),
        tf_estimator.EvalSpec(eval_input(), steps=None, exporters=exporters, start_delay_secs=0, throttle_secs=0),
    )


def _exports(model_dir: Path, exporter: str) -> list[Path]:
    return sorted((model_dir / "export" / exporter).iterdir())


@pytest.mark.slow
def test_evaluates_and_exports_at_every_checkpoint(tmp_path: Path) -> None:
    exporters = [
        tf_estimator.LatestExporter("latest", serving_input, exports_to_keep=2),
        tf_estimator.BestExporter("best", serving_input, exports_to_keep=1),
        tf_estimator.FinalExporter("final", serving_input),
    ]
    estimator = logistic_estimator(tmp_path, save_checkpoints_steps=10)

    metrics, exported = _train_and_evaluate(estimator, max_steps=30, exporters=exporters)

    losses = scalars(tmp_path / "eval", "loss")
    assert sorted(losses) == [10, 20, 30]
    assert losses[30] < losses[20] < losses[10]  # so that each is a new best, exported
    assert metrics["global_step"] == 30
    assert metrics["loss"] == pytest.approx(losses[30])
    assert [len(_exports(tmp_path, name)) for name in ("latest", "best", "final")] == [2, 1, 1]
    assert exported[-1].decode() == str(_exports(tmp_path, "final")[0])

    probabilities = [p["probability"] for p in estimator.predict(eval_input())]
    for name in ("latest", "best", "final"):
        serve = tf.saved_model.load(str(_exports(tmp_path, name)[-1])).signatures["serving_default"]
        served = serve(**{feature: tf.constant(values) for feature, values in features().items()})
        assert served["probability"].numpy() == pytest.approx(probabilities, rel=1e-6)


def test_the_best_exporter_keeps_the_best_when_later_ones_are_worse(tmp_path: Path) -> None:
    def more_steps_are_better_until_20(best_eval_result: Any, current_eval_result: Any) -> bool:
        return bool(current_eval_result["global_step"] <= 20)

    best = tf_estimator.BestExporter("best", serving_input, compare_fn=more_steps_are_better_until_20)
    _train_and_evaluate(logistic_estimator(tmp_path, save_checkpoints_steps=10), max_steps=40, exporters=best)

    assert len(_exports(tmp_path, "best")) == 2  # the first, and the one at step 20


def test_resumes_where_an_earlier_run_stopped(tmp_path: Path) -> None:
    _train_and_evaluate(logistic_estimator(tmp_path, save_checkpoints_steps=10), max_steps=10)
    _train_and_evaluate(logistic_estimator(tmp_path, save_checkpoints_steps=10), max_steps=20)

    assert sorted(scalars(tmp_path / "eval", "loss")) == [10, 20]


def test_stops_early_when_the_loss_no_longer_decreases(tmp_path: Path) -> None:
    estimator = logistic_estimator(tmp_path, learning_rate=0.0, save_checkpoints_steps=5)
    stop = tf_estimator.experimental.stop_if_no_decrease_hook(
        estimator, "loss", max_steps_without_decrease=10, run_every_secs=None, run_every_steps=5
    )

    _train_and_evaluate(estimator, max_steps=1000, hooks=[stop])

    assert 10 < estimator.get_variable_value("global_step") < 50
