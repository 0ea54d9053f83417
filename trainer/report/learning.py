"""Learning curves: the metrics of all evaluations of a training, by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

FIRST = ("average_loss", "loss", "accuracy", "auc", "auc_precision_recall", "recall", "precision")
PANELS = 6
UNREAD = {"bias", "label"}  # the same in every evaluation, or no measure of the model
_STEP = "global_step"


def learning_curves(
    evaluations: Sequence[Mapping[str, Any]], *, best_metric: str | None, best_step: int | None, steps_an_epoch: float
) -> dict[str, Any]:
    """The metrics of all evaluations, as JSON holds them.

    Args:
      evaluations: the content of `evaluations.json`.
      best_metric: the metric that selects the best export; its curve comes first.
      best_step: the step of the best export.
      steps_an_epoch: how many steps read the train split once.

    Returns:
      `evaluations`, each with its `epoch`; and `panels`: the curves that are drawn, with `metric`, `steps`, `values`
      and `best`, the best export's step, if the curve has it.
    """
    rows = [
        {
            "step": int(e[_STEP]),
            "epoch": round(e[_STEP] / steps_an_epoch, 2),
            **{k: v for k, v in e.items() if k != _STEP},
        }
        for e in evaluations
    ]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "epoch"))
    wanted = dict.fromkeys(name for name in (best_metric, *FIRST, *names) if name in names)
    chosen = [name for name in wanted if name is not None and name.split("/")[0] not in UNREAD]
    if "average_loss" in chosen and "loss" in chosen:  # the same, but for the last batch's share
        chosen.remove("loss")
    panels = []
    for name in chosen[:PANELS]:
        points = [(row["step"], row[name]) for row in rows if _finite(row.get(name))]
        if points:
            steps, values = (list(column) for column in zip(*points, strict=True))
            panels.append(
                {"metric": name, "steps": steps, "values": values, "best": best_step if best_step in steps else None}
            )
    return {"evaluations": rows, "panels": panels, "best_metric": best_metric, "best_step": best_step}


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
