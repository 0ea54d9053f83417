"""Records evaluations: their metrics as files and lines, and at the end of a training reports."""

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
    """Returns what `Estimator.evaluate` gives as plain numbers, without arrays; NaN: the rows leave it undefined."""
    values = sorted((name, value) for name, value in metrics.items() if not np.ndim(value))
    return {name: int(value) if name == "global_step" else float(value) for name, value in values}


def write_metrics(model_dir: str, dataset: OpenDataset, split: str, metrics: Metrics, positive: str | None) -> None:
    """Writes `metrics-<split>.json`: the split, the dataset's run, the metrics, and which class binary ones are of."""
    content = {"split": split, "data_run": dataset.run, "rows": dataset.rows(split), "metrics": finite(metrics)}
    if positive is not None:
        content["positive_class"] = positive
    path = layout.join(model_dir, f"metrics-{split}.json")
    storage.write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")


def evaluation_line(
    metrics: Metrics, chosen: str, split: str, steps_an_epoch: float, positive: str | None = None
) -> str:
    """Returns an evaluation as a line: its step and epoch, the metric that selects the best export, a few others."""
    step = metrics["global_step"]
    undefined = "auc" in metrics and metrics.get("label/mean") in (0, 1)
    candidates = dict.fromkeys((chosen, "accuracy", "auc", "average_loss" if "average_loss" in metrics else "loss"))
    names = [name for name in candidates if name in metrics and not (name == "auc" and undefined)][:3]
    if positive is not None and "recall" in metrics and not undefined:
        names.append("recall")
    note = "; auc is undefined, since all rows are of one class" if undefined else ""
    return f"step {step:,} (epoch {step / steps_an_epoch:.1f}): {split} {described(metrics, positive, names)}{note}"


def so_far(metrics: Metrics | None, chosen: str | None, split: str) -> str:
    """Returns how good the last evaluation was, such as `, eval accuracy 0.835`; '' before the first."""
    if metrics is None:
        return ""
    name = next((name for name in ("accuracy", "rmse") if name in metrics), None) or best_metric(metrics, chosen).name
    return f", {split} {REGRESSION[name] if name == 'rmse' else name} {metrics[name]:.3g}" if name in metrics else ""


class Evaluations:
    """The evaluations of a training, which `evaluations.json` records.

    Attributes:
      best: the evaluation of the best checkpoint, if this process has made it.
      best_predictions: those of the best one; None where the model gives none in EVAL.
      last: the last evaluation.
    """

    def __init__(self, model_dir: str) -> None:
        self._model_dir = model_dir
        self.best: Metrics | None = None
        self.best_predictions: Predictions | None = None
        self.last: Metrics | None = None

    def add(self, metrics: Metrics, predictions: Predictions | None, *, is_best: bool) -> None:
        """Adds an evaluation. Removes those of the same and later steps, which belong to a discarded training."""
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
      seconds: the time of training and its evaluations, without the final export.
      metrics: those of `export_dir` by split, as in `metrics-<split>.json`; `global_step` is its step.
      exports: the newest export's folder by name (best, final).
      ended: why training ended.
      reports: the page of the report on `export_dir` by split.
      promotion: what became of the best export, with --promote_to.
      positive_class: of two classes, the one that precision, recall and the precision-recall curve are of.
      profile: where the time went, with --profile.
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
        """The best export's folder; the final one's if there is no best export."""
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
    """Writes the report of an evaluation into the model directory, and its predictions. Returns the page's path.

    Args:
      dataset, options: those of the training.
      estimator: the Estimator.
      checkpoint: the one that was evaluated.
      split: the split that was evaluated.
      metrics: of the evaluation.
      predictions: of the evaluation; None: the model gives none in EVAL, and predicts the split once more.
    """
    reading = input_options(dataset, options, split=split, mode="eval")
    curves = read_curves(dataset, options, training=True)
    steps = options.eval_steps
    if split != options.eval_split:
        steps, curves = None, {**curves, "panels": []}  # which are of the evaluated split
    if predictions is None:
        predictions = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
    model, path = options.model, predictions_path(options.model_dir, split)
    evaluated = Evaluated(dataset, split, reading, model, estimator, checkpoint, metrics, predictions, curves)
    return write_report(options.model_dir, split, full(evaluated, slice_by=options.slice_by, predictions_path=path))


def read_curves(dataset: OpenDataset, options: TrainingPlan, *, training: bool = False) -> dict[str, Any]:
    """Returns a model directory's learning curves; empty where nothing was evaluated. `training`: with its own loss."""
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
        rmse_of = "the label's logarithm" if options.label and options.label.transform == "log" else "the label"
    return {**curves, "panels": [rounds_panel(rounds, best, rmse_of=rmse_of)]}


_EVENTS = 20_000  # of a file
_POINTS = 400  # of the curve: the means of neighbours


def training_losses(model_dir: str) -> dict[int, float]:
    """Returns the loss of training batches by step, from the events that TensorBoard shows; empty where there are none.

    Of a file that is damaged, what stands before the damage.
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
    together = -(-len(points) // _POINTS) or 1
    groups = (points[i : i + together] for i in range(0, len(points), together))
    return {group[-1][0]: sum(value for _, value in group) / len(group) for group in groups}
