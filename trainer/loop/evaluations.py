"""The evaluations of a training: written to `evaluations.json`, told, and compared."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from schemas import storage
from schemas.dataset import Dataset, layout
from trainer.estimator import tf_estimator
from trainer.export.exporters import BestExporter
from trainer.model_dir.evaluations_json import EVALUATIONS, Metrics, read_evaluations
from trainer.spec.metrics import best_metric, defined


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
