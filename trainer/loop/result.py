"""The result of a training."""

from __future__ import annotations

import dataclasses

from trainer.export.exporters import BEST, FINAL
from trainer.model_dir.evaluations_json import Metrics
from trainer.promotion.decision import Decision


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
