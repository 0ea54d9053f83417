"""The curves of a training: what each evaluation measured, beside the loss of the training's own batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

FIRST = ("rmse", "mae", "r2", "average_loss", "loss", "accuracy", "auc", "auc_precision_recall", "recall", "precision")
PANELS = 6
# The same in every evaluation, or no measure of the model.
NOT_DRAWN = {"bias", "label", "prediction", "accuracy_baseline", "rmse_baseline"}
SAME_LOSS = 0.02  # of the loss: how far batches and rows may differ, as the last batch has fewer rows


def learning_curves(
    evaluations: Sequence[Mapping[str, Any]],
    *,
    best_metric: str | None,
    best_step: int | None,
    steps_an_epoch: float,
    training: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Returns the metrics of all evaluations, as JSON holds them.

    Args:
      evaluations: the content of `evaluations.json`.
      best_metric: the metric that selects the best export; its curve comes first.
      best_step: the step of the best export.
      steps_an_epoch: how many steps read the train split once.
      training: the loss of batches of the training, by step.

    Returns:
      `evaluations`, each with its `epoch`; and `panels`: the curves that are drawn, with `metric`, `steps`, `values`
      and `best`, the best export's step, if the curve has it. That of the loss has `train` and `train_steps`, too.
    """
    rows: list[dict[str, Any]] = []
    for evaluation in evaluations:
        metrics = dict(evaluation)
        step = int(metrics.pop("global_step"))
        rows.append({"step": step, "epoch": round(step / steps_an_epoch, 2), **metrics})
    drawn = _drawn(rows, best_metric, with_training=bool(training))
    learned = next((name for name in ("balanced_loss", "loss", "average_loss") if name in drawn), None)
    panels = []
    for name in drawn[:PANELS]:
        values = {row["step"]: row[name] for row in rows if _is_finite(row.get(name))}
        if values:
            panels.append(_panel(name, values, best_step))
            if name == learned and training:
                panels[-1] |= {"train_steps": [*training], "train": [*training.values()]}
    return {"evaluations": rows, "panels": panels, "best_metric": best_metric, "best_step": best_step}


def rounds_panel(
    losses: Mapping[str, Sequence[float]], best_step: int | None, *, rmse_of: str | None = None
) -> dict[str, Any]:
    """Returns the panel of boosted trees: the loss after each round on the evaluated split, and on `train` beside it.

    Args:
      losses: by split.
      best_step: the number of rounds of the best export.
      rmse_of: of a regression, what the root mean squared error is of; the losses are its squares.
    """
    name = "log loss"
    if rmse_of is not None:
        name = f"RMSE of {rmse_of}"
        losses = {split: [math.sqrt(loss) for loss in values] for split, values in losses.items()}
    split = next((name for name in losses if name != "train"), "train")
    panel = _panel(f"{name} on {split}, by round", dict(enumerate(losses[split], 1)), best_step)
    return panel if split == "train" else {**panel, "train": [*losses.get("train", ())]}


def _panel(metric: str, values: Mapping[int, float], best_step: int | None) -> dict[str, Any]:
    best = best_step if best_step in values else None
    return {"metric": metric, "steps": [*values], "values": [*values.values()], "best": best}


def _drawn(rows: Sequence[Mapping[str, Any]], best_metric: str | None, *, with_training: bool) -> list[str]:
    """The metrics that have a curve, in their order, each loss once."""
    metrics = dict.fromkeys(name for row in rows for name in row if name not in ("step", "epoch"))
    ordered = dict.fromkeys(name for name in (best_metric, *FIRST, *metrics) if name in metrics)
    drawn = [name for name in ordered if name is not None and name.split("/")[0] not in NOT_DRAWN]
    if "rmse_baseline" in metrics:  # the losses of a regression are in other units
        return [name for name in drawn if name not in ("average_loss", "loss")]
    if {"average_loss", "loss"} <= {*drawn} and (not with_training or all(map(_same_loss, rows))):
        drawn.remove("loss")
    return drawn


def _same_loss(row: Mapping[str, Any]) -> bool:
    """Whether the loss that a training lowers is the mean loss of a row, without weights or penalties."""
    loss, average = row.get("loss"), row.get("average_loss")
    return loss is not None and average is not None and math.isclose(loss, average, rel_tol=SAME_LOSS)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
