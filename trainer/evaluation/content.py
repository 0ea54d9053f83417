"""What a report says of a table of predictions, as JSON holds it: metrics, classes, confusion, curves, residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainer.evaluation.metrics import calibration_bins, margins, measure, report_metrics
from trainer.evaluation.predictions import MOST_CLASSES, Predictions
from trainer.evaluation.ranking import TABLE, Ranking, quotient

CURVES = 12  # classes whose curves are stored and drawn: the most frequent ones
MATRIX = 30  # classes of the confusion matrix that is shown: those with the most mistakes
MISTAKES = 20  # pairs of classes
BARS = 40  # of the histogram of residuals
DOTS = 1000  # rows in the picture of predictions against labels
GROUPS = 10  # of rows by their prediction
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def content_of(p: Predictions) -> dict[str, Any]:
    """Everything about an evaluation: its metrics, those that are undefined with the reason, and what is drawn."""
    usable = p.without_unusable()
    values = {name: measure(name, usable) for name in report_metrics(p.target)}
    metrics = {name: value if math.isfinite(value) else None for name, value in values.items()}
    undefined = {name: _why_undefined(name, p.rows, usable) for name, value in metrics.items() if value is None}
    kind = "classes" if p.target.names else "values"
    shown = _of_classes(usable) if p.target.names else _of_values(usable) if usable.rows else {}
    return {"kind": kind, "metrics": metrics, "undefined": undefined, **shown}


def _why_undefined(name: str, rows: int, p: Predictions) -> str:
    """Why a metric of the usable ones of some rows has no value."""
    names = p.target.names
    if not p.weight.sum() > 0:
        return "no row has a prediction" if rows else "the split has no rows"
    if name in ("auc", "average_precision"):
        everywhere = p.rankings[p.target.positive].positives.sum() > 0
        only = names[p.target.positive if everywhere else 1 - p.target.positive]
        return f"every row of the split is of the class {only!r}, and a curve needs rows of both"
    if name == "mean_auc_of_each_class_against_the_rest":
        if not p.rankings:
            return f"curves are made of up to {MOST_CLASSES:,} classes, and there are {len(names):,}"
        return "the split has rows of one class only"
    if names:
        return "the labels or the predictions are of one class only"
    return "every label of the split is the same number"


def _of_classes(p: Predictions) -> dict[str, Any]:
    names, target = p.target.names, p.target
    support, _, _ = margins(p)
    frequent = sorted(p.rankings, key=lambda i: -support[i])[:CURVES]
    content: dict[str, Any] = {
        "classes": _by_class(p),
        **_confusion(p),
        "curves": {names[i]: p.rankings[i].curves() for i in sorted(frequent)},
        "calibration": _calibration(p),
    }
    if target.binary:
        content["positive_class"] = names[target.positive]
        ranking = p.rankings[target.positive]
        if not ranking.undefined:
            content["thresholds"] = _thresholds(ranking)
    return content


def _by_class(p: Predictions) -> list[dict[str, Any]]:
    """Support, precision, recall, F1 and AUC of each class; None: undefined, since the divisor is 0."""
    support, predicted, correct = (x.tolist() for x in margins(p))
    rows = []
    for i, name in enumerate(p.target.names):
        ranking = p.rankings.get(p.target.positive if p.target.binary else i)  # of two classes, both areas are the same
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


def _confusion(p: Predictions) -> dict[str, Any]:
    """The confusion matrix, of many classes the part with the most mistakes; and the most frequent mistakes."""
    names, classes = p.target.names, len(p.target.names)
    codes, place = np.unique(p.label.astype(np.int64) * classes + p.predicted, return_inverse=True)
    true, guesses, weights = codes // classes, codes % classes, np.bincount(place, p.weight, len(codes))
    support, predicted, correct = margins(p)
    shown = np.arange(classes)
    if classes > MATRIX:
        occurs = np.flatnonzero(support + predicted)
        mistakes = (support + predicted - 2 * correct)[occurs]
        shown = np.sort(occurs[np.argsort(-mistakes, kind="stable")][:MATRIX])
    matrix = np.zeros((len(shown), len(shown)))
    inside = np.isin(true, shown) & np.isin(guesses, shown)
    matrix[np.searchsorted(shown, true[inside]), np.searchsorted(shown, guesses[inside])] = weights[inside]
    wrong = np.flatnonzero(true != guesses)
    worst = wrong[np.argsort(-weights[wrong], kind="stable")][:MISTAKES]
    return {
        "confusion": {
            "classes": [names[i] for i in shown],
            "matrix": matrix.tolist(),
            "complete": len(shown) == classes,
        },
        "mistakes": [
            {
                "true": names[true[i]],
                "predicted": names[guesses[i]],
                "weight": float(weights[i]),
                "share": float(weights[i] / support[true[i]]),
            }
            for i in worst
        ],
    }


def _calibration(p: Predictions) -> dict[str, Any]:
    weight, probability, true = calibration_bins(p)
    used = weight > 0
    of = p.target.names[p.target.positive] if p.target.binary else "the predicted class"
    return {
        "of": f"the probability of {of}",
        "expected_calibration_error": quotient(float(np.abs(probability - true).sum()), float(weight.sum())),
        "weight": weight[used].tolist(),
        "mean_probability": (probability[used] / weight[used]).tolist(),
        "share": (true[used] / weight[used]).tolist(),
    }


def _thresholds(ranking: Ranking) -> dict[str, Any]:
    """What each threshold gives, and the one with the highest F1."""
    return {"table": [ranking.at(threshold) for threshold in TABLE], "best_f1": ranking.at(ranking.best_f1())}


def _of_values(p: Predictions) -> dict[str, Any]:
    labels, values = p.label, p.score
    residuals = values - labels
    # The outermost hundredths would leave the histogram one bar: they are counted in its first and last one.
    low, high = np.quantile(residuals, [0.005, 0.995])
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, edges = np.histogram(np.clip(residuals, low, high), BARS, (low, high))
    dots = np.linspace(0, len(labels) - 1, min(DOTS, len(labels))).astype(int)  # the split is shuffled
    return {
        "residuals": {
            "quantiles": dict(zip(map(str, QUANTILES), np.quantile(residuals, QUANTILES).tolist(), strict=True)),
            "edges": edges.tolist(),
            "counts": counts.tolist(),
            "rows": len(residuals),
        },
        "rows_shown": {"label": labels[dots].tolist(), "prediction": values[dots].tolist()},
        "groups": [
            {
                "rows": len(group),
                "mean_prediction": float(values[group].mean()),
                "mean_label": float(labels[group].mean()),
                "root_mean_squared_error": float(np.sqrt(np.mean(residuals[group] ** 2))),
            }
            for group in np.array_split(np.argsort(values, kind="stable"), min(GROUPS, len(values)))
        ],
    }
