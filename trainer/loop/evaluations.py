"""The metric for Vertex AI's tuner, in the file that Google's cloudml-hypertune writes.

One JSON object a line, the latest 100 evaluations, numbers as strings; the file is written as a whole each time.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas import storage
from schemas.dataset import Dataset, layout
from trainer.estimator import tf_estimator
from trainer.export.exporters import BEST, FINAL, BestExporter
from trainer.model_dir.model_json import EVALUATIONS, Metrics, read_evaluations
from trainer.promotion.decision import Decision
from trainer.spec.metrics import best_metric, defined

FILE, TRIAL = "CLOUD_ML_HP_METRIC_FILE", "CLOUD_ML_TRIAL_ID"  # variables that Vertex AI sets in a trial
DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - where Vertex AI looks
_KEPT = 100

_reported: collections.deque[dict[str, str | float]] = collections.deque(maxlen=_KEPT)


def report(metric: str, value: float, global_step: int) -> None:
    """Reports an evaluation, if this process is in a trial of a tuner.

    Args:
      metric: the metric's name, for the tuner's `metricId`.
      value: its value.
      global_step: the step that was evaluated.
    """
    if not (os.environ.get(FILE) or os.environ.get(TRIAL)):
        return
    _reported.append(
        {
            "timestamp": time.time(),
            "trial": os.environ.get(TRIAL, "0"),
            metric: str(float(value)),
            "global_step": str(global_step),
            "checkpoint_path": "",
        }
    )
    path = Path(os.environ.get(FILE) or DEFAULT_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry, sort_keys=True) + "\n" for entry in _reported))


def plain_metrics(metrics: Mapping[str, Any]) -> Metrics:
    """The result of `Estimator.evaluate` as plain numbers; NaN is one that the evaluated rows leave undefined."""
    values = sorted(defined(metrics).items())
    return {name: int(value) if name == "global_step" else float(value) for name, value in values}


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as JSON holds them: None for NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def write_metrics(model_dir: str, dataset: Dataset, split: str, metrics: Metrics) -> None:
    """Writes `metrics-<split>.json`: the split, the dataset's run, and the metrics."""
    content = {"split": split, "data_run": dataset.run, "rows": dataset.rows(split), "metrics": finite(metrics)}
    path = layout.join(model_dir, f"metrics-{split}.json")
    storage.write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")


def evaluation_line(metrics: Metrics, chosen: str, split: str, steps_an_epoch: float) -> str:
    """An evaluation in a line: its step and epoch, and the metric that selects the best export before two others."""
    step = metrics["global_step"]
    undefined = "auc" in metrics and metrics.get("label/mean") in (0, 1)
    wanted = dict.fromkeys((chosen, "accuracy", "auc", "average_loss", "loss"))
    names = [name for name in wanted if name in metrics and not (name == "auc" and undefined)]
    values = ", ".join(f"{name} {metrics[name]:.4g}" for name in names[:3])
    note = "; auc is undefined, since all rows are of one class" if undefined else ""
    return f"step {step:,} (epoch {step / steps_an_epoch:.1f}): {split} {values}{note}"


def steps_without_improvement(evaluations: list[Metrics], dataset: Dataset, *, metric: str | None) -> int:
    """The steps from the best evaluation to the last one, by the metric that selects the best export.

    Raises:
      UsageError: the evaluations have no such metric.
    """
    if not evaluations:
        return 0
    measure = best_metric(dataset, evaluations[-1], metric)
    best: float | None = None
    best_step = evaluations[0]["global_step"]
    for evaluation in evaluations:
        value = evaluation.get(measure.name)
        if value is not None and measure.improves(value, best):
            best, best_step = value, evaluation["global_step"]
    return int(evaluations[-1]["global_step"] - best_step)


class RecordEvaluations(tf_estimator.Exporter):
    """Adds each evaluation to `evaluations.json` and reports it.

    This is an exporter because `train_and_evaluate` passes every evaluation to its exporters, in every role.

    Args:
      model_dir: the model directory.
      best: the exporter that is called before this one.
      report: called with each evaluation, and whether it is that of the export that a training recommends so far: of
        the best one, or the last evaluation if this process has written none.

    Attributes:
      recommended: that evaluation; None before the first one.
    """

    def __init__(self, model_dir: str, best: BestExporter, report: Callable[[Metrics, bool], None]) -> None:
        self._model_dir = model_dir
        self._best = best
        self._report = report
        self.recommended: Metrics | None = None

    @property
    def name(self) -> str:
        return "evaluations"

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> None:
        """Adds the evaluation. Removes those of the same and later steps, which belong to a discarded training."""
        metrics = plain_metrics(eval_result)
        earlier = [e for e in read_evaluations(self._model_dir) if e["global_step"] < metrics["global_step"]]
        text = json.dumps([*earlier, finite(metrics)], indent=1, allow_nan=False) + "\n"
        storage.write_bytes(layout.join(self._model_dir, EVALUATIONS), text.encode())
        recommended = self._best.step in (None, metrics["global_step"])
        if recommended:
            self.recommended = metrics
        self._report(metrics, recommended)


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

    @property
    def export_dir(self) -> str:
        """The best export's folder; the final one's if there is no best export."""
        return self.exports.get(BEST) or self.exports[FINAL]
