"""The reports of a training: short ones while it trains, as far as they cost little, and the whole one at its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from schemas.dataset import Dataset, layout
from schemas.exports.notes import read_mark
from trainer.data.input_options import input_options
from trainer.estimator import tf_estimator
from trainer.export.exporters import BEST
from trainer.model_dir.model_json import read_evaluations
from trainer.report.budget import Budget
from trainer.report.hook import AnyCollector, Watch, write_summaries
from trainer.report.learning import learning_curves
from trainer.report.model_report import Evaluated, brief, full
from trainer.report.predicting import first_rows, predicted_again, predictor
from trainer.report.write import draw_all, write_report
from trainer.spec.metrics import best_metric
from trainer.spec.options import TrainOptions


class Reports:
    """Writes the reports of a training's evaluations into its model directory."""

    def __init__(self, dataset: Dataset, options: TrainOptions) -> None:
        self._dataset = dataset
        self._options = options
        self._budget = Budget()
        self.watch = Watch(dataset, options.model_dir, self._budget)
        self.recommended: AnyCollector | None = None  # the predictions of the evaluation that was last `recommended`

    def after_evaluation(self, metrics: Mapping[str, Any], *, recommended: bool) -> None:
        """Writes a report without slices, worst rows and importance, if reports have cost little so far."""
        if recommended:
            self.recommended = self.watch.last
        if self.watch.last is None or not self._budget.allows:
            return
        with self._budget.spend():
            evaluated = self._evaluated(self._options.eval_split, metrics, self.watch.last)
            write_report(self._options.model_dir, evaluated.split, brief(evaluated, self._curves()))

    def at_end(
        self, estimator: Any, checkpoint: str, split: str, metrics: Mapping[str, Any], found: AnyCollector | None
    ) -> str:
        """Writes the whole report of an evaluation, and its pictures for TensorBoard. Returns the page's path.

        Args:
          estimator: the Estimator.
          checkpoint: the one that was evaluated.
          split: the split that was evaluated.
          metrics: of the evaluation.
          found: its predictions; None: the model gives none in EVAL, and predicts the split once more.
        """
        evaluated = self._evaluated(split, metrics, found)
        limit = self._options.eval_steps if split == self._options.eval_split else None
        content = whole_report(estimator, checkpoint, evaluated, self._options, self._curves(), steps=limit)
        drawn = draw_all(content)
        pngs = {name: files["png"] for name, files in drawn.items()}
        write_summaries(self._options.model_dir, split, evaluated.step, content, pngs)
        return write_report(self._options.model_dir, split, content, drawn)

    def _evaluated(self, split: str, metrics: Mapping[str, Any], found: AnyCollector | None) -> Evaluated:
        options = self._options
        step = int(metrics["global_step"])
        return Evaluated(self._dataset, split, step, options.model, metrics, found, options.slice_by)

    def _curves(self) -> dict[str, Any]:
        return read_curves(self._dataset, self._options)


def whole_report(
    estimator: Any,
    checkpoint: str,
    evaluated: Evaluated,
    options: TrainOptions,
    curves: Mapping[str, Any],
    *,
    steps: int | None,
) -> dict[str, Any]:
    """The content of the whole report of an evaluation, whose predictions are made again if it has none.

    Args:
      estimator: the Estimator, wrapped by `with_keys_and_classes`.
      checkpoint: the one that was evaluated.
      evaluated: the evaluation.
      options: how the split is read.
      curves: the learning curves.
      steps: how many batches were evaluated; None: all.
    """
    dataset, split = evaluated.dataset, evaluated.split
    reading = input_options(dataset, options, split=split, mode=tf_estimator.ModeKeys.EVAL)
    if evaluated.found is None:
        found = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
        evaluated = dataclasses.replace(evaluated, found=found)
    return full(
        evaluated,
        curves,
        predict=predictor(estimator, checkpoint),
        batch=lambda rows: first_rows(dataset, split, dataclasses.replace(reading, batch_size=rows)),
    )


def read_curves(dataset: Dataset, options: TrainOptions) -> dict[str, Any]:
    """The learning curves of a model directory; empty where nothing was evaluated."""
    evaluations = read_evaluations(options.model_dir)
    metric = best_metric(dataset, evaluations[-1], options.best_metric).name if evaluations else None
    best = (read_mark(layout.join(options.model_dir, "export", BEST)) or {}).get("global_step")
    epoch = options.steps_an_epoch(dataset)
    return learning_curves(evaluations, best_metric=metric, best_step=best, steps_an_epoch=epoch)
