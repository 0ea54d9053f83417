"""Evaluations in one session, and what is told of them. A signal that a library drops ends them at the next step."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.command import finite
from schemas.dataset import OpenDataset
from schemas.exports.session import plain_session
from schemas.interrupts import Terminated, interruptible
from tests.support.processes import InterruptedAndSilent
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.evaluation.learning_curves import learning_curves, rounds_panel
from trainer.evaluation.watch import Watch
from trainer.export.outputs import with_keys_and_classes
from trainer.loop.evaluations import evaluation_line, plain_metrics, so_far
from trainer.loop.session_evaluation import SessionEvaluation
from trainer.models import BUILT_IN
from trainer.spec.metrics import described
from trainer.spec.task_spec import read_table_task_spec

IMAGES: Any = SimpleNamespace(image_schema=object())  # a dataset with classes
MIXED = {"auc": 0.8, "auc_precision_recall": 0.7, "accuracy": 0.9, "loss": 0.3, "label/mean": 0.25, "global_step": 10}


@pytest.mark.parametrize("mean", [0.0, np.float32(1)])
def test_rows_of_one_class_leave_the_areas_undefined(mean: float) -> None:
    one_class = {**MIXED, "auc": math.nan, "auc_precision_recall": math.nan, "label/mean": mean}
    metrics = plain_metrics(one_class)

    assert finite(metrics)["auc_precision_recall"] is None
    assert metrics["accuracy"] == 0.9
    line = evaluation_line(metrics, "accuracy", "eval", 5)
    assert line == "step 10 (epoch 2.0): eval accuracy 0.9, loss 0.3; auc is undefined, since all rows are of one class"


@pytest.mark.parametrize(
    ("metrics", "chosen", "text"),
    [
        (None, None, ""),
        ({"accuracy": 0.83456, "average_loss": 0.4, "loss": 0.4}, None, ", eval accuracy 0.835"),
        ({"average_loss": 12.5, "loss": 13.0}, None, ", eval average_loss 12.5"),
        ({"mae": 2.0, "loss": 13.0}, "mae", ", eval mae 2"),
    ],
)
def test_progress_says_how_good_the_last_evaluation_was(metrics: Any, chosen: str | None, text: str) -> None:
    assert so_far(metrics, chosen, "eval") == text


RARE = {
    "accuracy": 0.99,
    "accuracy_baseline": 0.995,
    "auc": 0.5,
    "auc_precision_recall": 0.01,
    "average_loss": 0.1,
    "precision": math.nan,
    "recall": 0.0,
    "label/mean": 0.005,
    "prediction/mean": 0.01,
    "global_step": 10,
}
NUMBERS = {
    "average_loss": 9.0,
    "rmse": 3.0,
    "mae": 2.0,
    "r2": 0.4375,
    "rmse_baseline": 4.0,
    "loss": 9.5,
    "label/mean": 5.0,
    "prediction/mean": 5.5,
    "global_step": 10,
}


def test_a_line_names_the_class_that_is_measured_and_the_baseline() -> None:
    line = evaluation_line(RARE, "average_loss", "eval", 5, "ja")
    baseline = "worse than the baseline: always predicting the most frequent class has an accuracy of 0.995"
    metrics_text = 'average_loss 0.1, accuracy 0.99, auc 0.5, recall of "ja" 0'
    assert line == f"step 10 (epoch 2.0): eval {metrics_text}; {baseline}"
    last = described(RARE, "ja")
    assert 'auc_precision_recall of "ja" 0.01' in last
    assert 'the mean probability of "ja" is 0.01, and its share of the rows is 0.005' in last


def test_a_regression_is_measured_in_the_units_of_the_label() -> None:
    line = evaluation_line(NUMBERS, "average_loss", "eval", 5)
    baseline = "always predicting the mean has an RMSE of 4"
    assert line == f"step 10 (epoch 2.0): eval RMSE 3, MAE 2, R2 0.4375; {baseline}"
    assert "worse than the baseline" in evaluation_line({**NUMBERS, "rmse": 5.0}, "average_loss", "eval", 5)
    assert so_far(NUMBERS, None, "eval") == ", eval RMSE 3"
    curves = learning_curves(
        [NUMBERS], best_metric="average_loss", best_step=10, steps_an_epoch=5, training={5: 0.1, 10: 0.01}
    )
    assert [panel["metric"] for panel in curves["panels"]] == ["rmse", "mae", "r2"]
    rounds = rounds_panel({"train": [4.0], "eval": [9.0]}, 1, rmse_of="the label")
    assert (rounds["metric"], rounds["values"], rounds["train"]) == (
        "RMSE of the label on eval, by round",
        [3.0],
        [2.0],
    )


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


def built(dataset: OpenDataset, model: str, folder: Path, watch: Watch | None = None) -> Any:
    config = tf_estimator.RunConfig(model_dir=str(folder), session_config=plain_session(), save_checkpoints_steps=3)
    spec = BUILT_IN[model]
    return with_keys_and_classes(
        spec.build(read_table_task_spec(dataset), spec.hparams(), config), dataset, watch=watch
    )


class CountedWatch(Watch):
    """Counts the graphs that it is built into."""

    graphs = 0

    def __call__(self, *of_graph: Any) -> Any:
        self.graphs += 1
        return super().__call__(*of_graph)


@pytest.mark.parametrize(("data", "model", "steps"), [("people", "tabular", None), ("wages", "linear", 2)])
def test_a_kept_session_evaluates_as_estimator_does(request, tmp_path: Path, data: str, model: str, steps: int | None):
    dataset = request.getfixturevalue(data)
    watch = CountedWatch(dataset)

    def read(mode: str = ModeKeys.EVAL) -> tf.data.Dataset:
        return input_fn(dataset, "train", mode=mode, options=InputOptions(batch_size=32))

    estimator = built(dataset, model, tmp_path, watch)
    estimator.train(lambda: read(ModeKeys.TRAIN), max_steps=6)
    evaluation = SessionEvaluation(estimator, lambda params: read(), steps)
    checkpoints = [str(tmp_path / f"model.ckpt-{step}") for step in (3, 6, 3)]
    for checkpoint in checkpoints:
        metrics = evaluation(checkpoint)
        predictions = watch.last
        expected = estimator.evaluate(read, steps=steps, checkpoint_path=checkpoint)
        assert dict(metrics) == pytest.approx(expected, rel=1e-6, abs=1e-7, nan_ok=True)
        again = watch.last
        assert predictions is not None
        assert again is not None
        assert predictions.rows == again.rows == (min(64, dataset.rows("train")) if steps else dataset.rows("train"))
    assert watch.graphs == 1 + len(checkpoints)  # of the session's evaluations one for all, of Estimator's each its own
    evaluation.close()
    (events,) = Path(estimator.eval_dir()).glob("events.out.tfevents.*")
    written = [event for event in tf.compat.v1.train.summary_iterator(str(events)) if event.summary.value]
    assert {event.step for event in written} == {3, 6}
    assert {v.tag for event in written for v in event.summary.value} >= set(expected) - {"global_step"}


def test_a_model_with_local_variables_and_metrics_of_its_own(wages: OpenDataset, tmp_path: Path):
    def model(features: Any, labels: Any, mode: str) -> Any:
        value = tf.cast(labels if labels is not None else 0, tf.float32)
        count = tf.Variable(lambda: 0.0, collections=["own"])
        both = tf.compat.v1.metrics.mean_tensor([[1.0, 2.0]])
        begin = tf.group(tf.compat.v1.local_variables_initializer(), tf.compat.v1.variables_initializer([count]))
        counted = tf.compat.v1.assign_add(count, 1.0)
        return tf_estimator.EstimatorSpec(
            mode,
            predictions={"value": value},
            loss=tf.reduce_mean(value) * tf.compat.v1.get_variable("scale", []),
            train_op=tf.compat.v1.train.get_or_create_global_step().assign_add(1),
            eval_metric_ops={"batches": (count, counted), "both": both},
            scaffold=tf.compat.v1.train.Scaffold(local_init_op=begin),
        )

    def read(mode: str = ModeKeys.EVAL) -> tf.data.Dataset:
        return input_fn(wages, "train", mode=mode, options=InputOptions(batch_size=32))

    estimator = with_keys_and_classes(tf_estimator.Estimator(model, str(tmp_path)), wages)
    estimator.train(lambda: read(ModeKeys.TRAIN), max_steps=1)
    evaluation = SessionEvaluation(estimator, lambda params: read(), None)
    for _ in range(2):
        metrics, expected = evaluation(estimator.latest_checkpoint()), estimator.evaluate(read)
        assert metrics["both"].tolist() == expected["both"].tolist() == [[1.0, 2.0]]
        assert plain_metrics(metrics) == plain_metrics(expected)
    assert metrics["batches"] > 1


def test_a_model_with_evaluation_hooks_of_its_own_is_evaluated_by_estimator(wages: OpenDataset, tmp_path: Path):
    ended: list[str] = []

    class Own(tf.compat.v1.train.SessionRunHook):
        def begin(self) -> None:
            tf.constant(1)  # hooks may add to a graph, which a kept session's does not take

        def end(self, session: Any) -> None:
            ended.append("")

    def model(features: Any, labels: Any, mode: str) -> Any:
        scale = tf.compat.v1.get_variable("scale", [])
        value = scale * tf.cast(labels if labels is not None else 0, tf.float32)
        step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        return tf_estimator.EstimatorSpec(
            mode, predictions={"value": value}, loss=tf.reduce_mean(value), train_op=step, evaluation_hooks=[Own()]
        )

    def read(mode: str = ModeKeys.EVAL) -> tf.data.Dataset:
        return input_fn(wages, "train", mode=mode, options=InputOptions(batch_size=32))

    estimator = with_keys_and_classes(tf_estimator.Estimator(model, str(tmp_path)), wages)
    estimator.train(lambda: read(ModeKeys.TRAIN), max_steps=1)
    evaluation = SessionEvaluation(estimator, lambda params: read(), None)
    first = evaluation(estimator.latest_checkpoint())
    assert dict(first) == dict(evaluation(estimator.latest_checkpoint())) == estimator.evaluate(read)
    assert len(ended) == 3
