"""The metrics of predicted classes, by their definitions in scikit-learn; where one is undefined, why."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from trainer.report.collect import ClassCollector
from trainer.report.ranking import TABLE, Ranking, quotient
from trainer.report.scores import MOST_CLASSES

CURVES = 12  # classes whose curves are stored and drawn: the most frequent ones
MATRIX = 30  # classes of the confusion matrix that is shown: those with the most mistakes
MISTAKES = 20  # pairs of classes


@dataclasses.dataclass
class Metrics:
    """Metrics by name, in the order in which they are read; those without a value with the reason instead."""

    values: dict[str, float | None] = dataclasses.field(default_factory=dict)
    undefined: dict[str, str] = dataclasses.field(default_factory=dict)

    def put(self, name: str, value: float | None, *, otherwise: str) -> None:
        """Adds a metric; `otherwise` says why there is none if the value is None or not finite."""
        found = value is not None and math.isfinite(value)
        self.values[name] = value if found else None
        if not found:
            self.undefined[name] = otherwise


def class_content(found: ClassCollector, *, curves: bool = True) -> dict[str, Any]:
    """Everything about an evaluation of classes, as JSON holds it: metrics, classes, confusion, curves, calibration.

    `curves`: whether to make the curves, for which the scores of each class are sorted.
    """
    support = found.confusion.margins()[0]
    rankings = {i: found.scores.ranking(i) for i in found.scores.classes} if curves else {}
    metrics = class_metrics(found, rankings if curves else None)
    shown = np.arange(len(found.names)) if len(found.names) <= MATRIX else found.confusion.most_confused(MATRIX)
    frequent = sorted(rankings, key=lambda i: -support[i])[:CURVES]
    content: dict[str, Any] = {
        "kind": "classes",
        "metrics": metrics.values,
        "undefined": metrics.undefined,
        "classes": by_class(found, rankings),
        "confusion": {
            "classes": [found.names[i] for i in shown],
            "matrix": found.confusion.matrix(shown).tolist(),
            "complete": len(shown) == len(found.names),
        },
        "mistakes": [
            {
                "true": found.names[true],
                "predicted": found.names[guess],
                "weight": weight,
                "share": weight / support[true],
            }
            for true, guess, weight in found.confusion.worst_pairs(MISTAKES)
        ],
        "curves": {found.names[i]: rankings[i].curves() for i in sorted(frequent)},
        "calibration": {
            "of": f"the probability of {found.names[1]}" if found.binary else "the probability of the predicted class",
            **found.calibration.content(),
        },
    }
    if found.binary and curves and not rankings[1].undefined:
        content["thresholds"] = thresholds(rankings[1])
    return content


def thresholds(ranking: Ranking) -> dict[str, Any]:
    """What each threshold gives, and the one with the highest F1."""
    return {"table": [ranking.at(threshold) for threshold in TABLE], "best_f1": ranking.at(ranking.best_f1())}


def class_metrics(found: ClassCollector, rankings: dict[int, Ranking] | None) -> Metrics:
    """The metrics of the whole split; without areas under curves where there are no rankings."""
    metrics = Metrics()
    support, predicted, correct = found.confusion.margins()
    total = found.weight
    nothing = "no row has a prediction" if found.rows else "the split has no rows"
    rows = {"otherwise": nothing}
    metrics.put("accuracy", quotient(float(correct.sum()), total), **rows)
    metrics.put("accuracy_of_always_the_most_frequent_class", quotient(float(support.max()), total), **rows)
    occurs = support > 0
    recalls = correct[occurs] / support[occurs]
    metrics.put("balanced_accuracy", float(recalls.mean()) if occurs.any() else None, **rows)
    present = (support + predicted) > 0
    f1 = 2 * correct[present] / (support + predicted)[present]
    metrics.put("macro_f1", float(f1.mean()) if present.any() else None, **rows)
    metrics.put("weighted_f1", quotient(float(f1 @ support[present]), total), **rows)
    if rankings is not None:
        _put_areas(metrics, found, rankings, nothing)
    metrics.put("log_loss", quotient(found.loss, total), **rows)
    metrics.put("brier_score", quotient(found.brier, total), **rows)
    metrics.put("expected_calibration_error", found.calibration.error(), **rows)
    why = "the labels or the predictions are of one class only, or there are no rows"
    metrics.put("matthews_correlation", matthews(support, predicted, correct), otherwise=why)
    if len(found.names) > 10:
        metrics.put("recall_at_5", quotient(found.top_5, total), **rows)
    return metrics


def _put_areas(metrics: Metrics, found: ClassCollector, rankings: dict[int, Ranking], nothing: str) -> None:
    if found.binary:
        why = rankings[1].undefined
        if found.weight and why:
            only = found.names[1] if why.startswith("every") else found.names[0]
            why = f"every row of the split is of the class {only!r}, and a curve needs rows of both"
        metrics.put("auc", None if why else rankings[1].auc(), otherwise=why or nothing)
        metrics.put("average_precision", None if why else rankings[1].average_precision(), otherwise=why or nothing)
        if not why and not rankings[1].exact:
            metrics.put("auc_is_off_by_at_most", rankings[1].auc_error(), otherwise="")
        return
    areas = [ranking.auc() for ranking in rankings.values() if ranking.undefined is None]
    why = "the split has rows of one class only" if found.weight else nothing
    if not rankings:
        why = f"curves are made of up to {MOST_CLASSES:,} classes, and there are {len(found.names):,}"
    metrics.put("mean_auc_of_each_class_against_the_rest", float(np.mean(areas)) if areas else None, otherwise=why)
    errors = [ranking.auc_error() for ranking in rankings.values() if ranking.undefined is None]
    if any(errors):
        metrics.put("auc_is_off_by_at_most", max(errors), otherwise="")


def matthews(support: np.ndarray, predicted: np.ndarray, correct: np.ndarray) -> float | None:
    """The correlation of labels and predictions; None where either is of one class.

    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.
    """
    total = support.sum()
    spread = (total**2 - predicted @ predicted) * (total**2 - support @ support)
    return float((correct.sum() * total - support @ predicted) / math.sqrt(spread)) if spread > 0 else None


def by_class(found: ClassCollector, rankings: dict[int, Ranking]) -> list[dict[str, Any]]:
    """Support, precision, recall, F1 and AUC of each class; None: undefined, since the divisor is 0."""
    support, predicted, correct = (x.tolist() for x in found.confusion.margins())
    rows = []
    for i, name in enumerate(found.names):
        ranking = rankings.get(1 if found.binary else i)  # of two classes, both areas are the same
        rows.append(
            {
                "class": name,
                "support": support[i],
                "predicted": predicted[i],
                "precision": quotient(correct[i], predicted[i]),
                "recall": quotient(correct[i], support[i]),
                "f1": quotient(2 * correct[i], support[i] + predicted[i]),
                "auc": None if ranking is None or ranking.undefined else ranking.auc(),
            }
        )
    return rows
