"""Records evaluations: writes metrics to files, formats them as lines, and writes the reports of a training."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from schemas import storage
from schemas.command import finite
from schemas.dataset import OpenDataset, layout
from schemas.exports.notes import BEST, FINAL
from trainer.data.input_options import input_options
from trainer.evaluation.learning_curves import learning_curves, rounds_panel
from trainer.evaluation.page import predictions_path, write_report
from trainer.evaluation.predictions import Predictions
from trainer.evaluation.report import Evaluated, full
from trainer.evaluation.watch import predicted_again
from trainer.export.exporters import best_step
from trainer.loop.profile import Profile
from trainer.model_dir.model_json import EVALUATIONS, Metrics, read_evaluations, read_rounds
from trainer.models import is_grown
from trainer.promotion.gate import Decision
from trainer.spec.metrics import REGRESSION, best_metric, described
from trainer.spec.options import TrainingPlan


def plain_metrics(metrics: Mapping[str, Any]) -> Metrics:
    """Converts the result of `Estimator.evaluate` to plain numbers, sorted by name; leaves out arrays.

    NaN means that a metric is undefined for these rows.
    """
    values = sorted((name, value) for name, value in metrics.items() if not np.ndim(value))
    return {name: int(value) if name == "global_step" else float(value) for name, value in values}


def write_metrics(model_dir: str, dataset: OpenDataset, split: str, metrics: Metrics, positive: str | None) -> None:
    """Writes `metrics-<split>.json`.

    The file holds the split, the dataset's run, the number of rows, the metrics and the positive class.

    Args:
      model_dir: the model directory.
      dataset: the dataset that was evaluated.
      split: the split that was evaluated.
      metrics: the metrics by name.
      positive: the class for which binary metrics are computed; None if the label does not have two classes.
    """
    content = {"split": split, "data_run": dataset.run, "rows": dataset.rows(split), "metrics": finite(metrics)}
    if positive is not None:
        content["positive_class"] = positive
    path = layout.join(model_dir, f"metrics-{split}.json")
    storage.write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")


def evaluation_line(
    metrics: Metrics, chosen: str, split: str, steps_an_epoch: float, positive: str | None = None
) -> str:
    """Formats an evaluation as a line: its step and epoch, the metric that selects the best export, and a few others.

    Args:
      metrics: the metrics of the evaluation, with `global_step`.
      chosen: the name of the metric that selects the best export.
      split: the split that was evaluated.
      steps_an_epoch: the number of steps in an epoch.
      positive: the class for which binary metrics are computed; None if the label does not have two classes.
    """
    step = metrics["global_step"]
    undefined = "auc" in metrics and metrics.get("label/mean") in (0, 1)
    candidates = dict.fromkeys((chosen, "accuracy", "auc", "average_loss" if "average_loss" in metrics else "loss"))
    names = [name for name in candidates if name in metrics and not (name == "auc" and undefined)][:3]
    if positive is not None and "recall" in metrics and not undefined:
        names.append("recall")
    note = "; auc is undefined, since all rows are of one class" if undefined else ""
    return f"step {step:,} (epoch {step / steps_an_epoch:.1f}): {split} {described(metrics, positive, names)}{note}"


def so_far(metrics: Metrics | None, chosen: str | None, split: str) -> str:
    """Formats the last evaluation for the status line, such as `, eval accuracy 0.835`.

    Args:
      metrics: the metrics of the last evaluation; None before the first one, which gives ''.
      chosen: the metric that selects the best export; None: the loss.
      split: the split that was evaluated.
    """
    if metrics is None:
        return ""
    name = next((name for name in ("accuracy", "rmse") if name in metrics), None) or best_metric(metrics, chosen).name
    return f", {split} {REGRESSION[name] if name == 'rmse' else name} {metrics[name]:.3g}" if name in metrics else ""


class Evaluations:
    """The evaluations of a training, which are also recorded in `evaluations.json`.

    Attributes:
      best: the metrics of the best checkpoint; None if this process has not evaluated it.
      best_predictions: the predictions of the best checkpoint; None if the model gives no predictions in EVAL.
      last: the metrics of the last evaluation.
    """

    def __init__(self, model_dir: str) -> None:
        self._model_dir = model_dir
        self.best: Metrics | None = None
        self.best_predictions: Predictions | None = None
        self.last: Metrics | None = None

    def add(self, metrics: Metrics, predictions: Predictions | None, *, is_best: bool) -> None:
        """Adds an evaluation to the file.

        Removes recorded evaluations of the same and later steps: they belong to a training that was discarded when it
        resumed from an earlier checkpoint.
        """
        self.last = metrics
        earlier = [e for e in read_evaluations(self._model_dir) if e["global_step"] < metrics["global_step"]]
        text = json.dumps([*earlier, finite(metrics)], indent=1, allow_nan=False) + "\n"
        storage.write_bytes(layout.join(self._model_dir, EVALUATIONS), text.encode())
        if is_best:
            self.best, self.best_predictions = metrics, predictions


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes:
      model_dir: the model directory.
      global_step: the step of the last checkpoint.
      steps: the number of steps trained this time; None in the evaluator's role, which does not train.
      seconds: the time of the training and its evaluations, without the final export.
      metrics: the metrics of `export_dir`, by split and name, as in `metrics-<split>.json`. Its `global_step` is the
        step of the exported checkpoint.
      exports: the newest export's folder, by kind (best, final).
      ended: why the training ended.
      reports: the page of the report on `export_dir`, by split.
      promotion: the decision on the best export, with --promote_to; else None.
      positive_class: the class for which precision, recall and the precision-recall curve are computed; None if the
        label does not have two classes.
      profile: where the time went, with --profile; else None.
    """

    model_dir: str
    global_step: int
    steps: int | None
    seconds: float
    metrics: dict[str, Metrics]
    exports: dict[str, str]
    ended: str
    reports: dict[str, str] = dataclasses.field(default_factory=dict)
    promotion: Decision | None = None
    positive_class: str | None = None
    profile: Profile | None = None

    @property
    def export_dir(self) -> str:
        """The folder of the best export, or of the final export if there is no best export."""
        return self.exports.get(BEST) or self.exports[FINAL]


def write_split_report(
    dataset: OpenDataset,
    options: TrainingPlan,
    estimator: Any,
    checkpoint: str,
    split: str,
    metrics: Metrics,
    predictions: Predictions | None,
) -> str:
    """Writes the report of an evaluation, and its predictions, into the model directory. Returns the path of the page.

    Args:
      dataset: the dataset.
      options: the options of the training.
      estimator: the Estimator.
      checkpoint: the checkpoint that was evaluated.
      split: the split that was evaluated.
      metrics: the metrics of the evaluation.
      predictions: the predictions of the evaluation. None: the model gives none in EVAL, and the split is predicted
        once more.
    """
    reading = input_options(dataset, options, split=split, mode="eval")
    curves = read_curves(dataset, options, training=True)
    steps = options.eval_steps
    if split != options.eval_split:
        # The panels and `eval_steps` belong to the evaluation split.
        steps, curves = None, {**curves, "panels": []}
    if predictions is None:
        predictions = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
    model, path = options.model, predictions_path(options.model_dir, split)
    evaluated = Evaluated(dataset, split, reading, model, estimator, checkpoint, metrics, predictions, curves)
    return write_report(options.model_dir, split, full(evaluated, slice_by=options.slice_by, predictions_path=path))


def read_curves(dataset: OpenDataset, options: TrainingPlan, *, training: bool = False) -> dict[str, Any]:
    """Returns the learning curves of a model directory, for the report; empty if nothing was evaluated.

    Args:
      dataset: the dataset.
      options: the options of the training.
      training: also return the loss of training batches.
    """
    evaluations = read_evaluations(options.model_dir)
    metric = best_metric(evaluations[-1], options.best_metric).name if evaluations else None
    best = best_step(layout.join(options.model_dir, "export", BEST))
    epoch = 1.0 if is_grown(options.model) else options.steps_an_epoch(dataset)
    losses = training_losses(options.model_dir) if training else {}
    curves = learning_curves(evaluations, best_metric=metric, best_step=best, steps_an_epoch=epoch, training=losses)
    rounds = read_rounds(options.model_dir)
    if not rounds:
        return curves
    rmse_of = None
    if evaluations and "rmse" in evaluations[-1]:
        rmse_of = "the label's logarithm" if options.label and options.label.is_logarithm else "the label"
    return {**curves, "panels": [rounds_panel(rounds, best, rmse_of=rmse_of)]}


_EVENTS = 20_000  # the most events that are read from a file
_POINTS = 400  # the most points of a curve


def training_losses(model_dir: str) -> dict[int, float]:
    """Reads the loss of training batches by step from TensorBoard's event files; empty if there are none.

    Neighbouring values are averaged, so that there are at most `_POINTS`. A damaged file is read up to the damage.
    """
    import tensorflow as tf

    losses: dict[int, float] = {}
    for name in sorted(name for name in storage.listdir(model_dir) if "tfevents" in name):
        records = tf.data.TFRecordDataset(layout.join(model_dir, name)).take(_EVENTS)
        with contextlib.suppress(tf.errors.DataLossError):
            for record in records.as_numpy_iterator():
                event = tf.compat.v1.Event.FromString(record)
                for value in event.summary.value:
                    if value.tag == "loss" and math.isfinite(value.simple_value):
                        losses[event.step] = value.simple_value
    points = sorted(losses.items())
    # -(-a // b) divides and rounds up: the number of neighbours that are averaged to one point.
    together = -(-len(points) // _POINTS) or 1
    groups = (points[i : i + together] for i in range(0, len(points), together))
    return {group[-1][0]: sum(value for _, value in group) / len(group) for group in groups}
