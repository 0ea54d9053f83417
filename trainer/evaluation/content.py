"""What a table of predictions says, as JSON holds it: metrics, classes, confusion, curves, residuals, and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from schemas.errors import counted, few
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
    """Returns the metrics of an evaluation, those that are undefined with the reason, and what is drawn."""
    usable = p.without_unusable()
    values = {name: measure(name, usable) for name in report_metrics(p.target)}
    metrics = {name: value if math.isfinite(value) else None for name, value in values.items()}
    undefined = {name: _why_undefined(name, p.rows, usable) for name, value in metrics.items() if value is None}
    kind = "classes" if p.target.names else "values"
    shown = _of_classes(usable) if p.target.names else _of_values(usable) if usable.rows else {}
    return {"kind": kind, "metrics": metrics, "undefined": undefined, **shown}


def notes_of(predictions: Predictions, content: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a reader must know before he reads the numbers."""
    rows = predictions.rows
    if not rows:
        yield "The split has no rows: there is nothing to report."
    if bad := int(rows - predictions.usable.sum()):
        yield (
            f"{bad:,} of {rows:,} predictions are NaN or infinite, and are left out of all "
            "figures. Look at the learning rate and at the features of these rows."
        )
    if 0 < rows < content["rows_of_the_split"]:
        yield f"Evaluated on {rows:,} of the {content['rows_of_the_split']:,} rows of the split (--eval_steps)."
    if 0 < rows < 100:
        yield f"Only {counted(rows, 'rows')}: with so few, other rows could give quite different numbers."
    scored = 0 if predictions.probabilities is None else len(predictions.probabilities)
    if 0 < scored < rows:
        yield f"Curves and the areas under them are of the first {scored:,} of {rows:,} rows."
    if predictions.usable.any() and predictions.target.names:
        missing = [row["class"] for row in content["classes"] if row["support"] == 0]
        if missing:
            yield f"No row of the split is of the class {few(missing)}: recall and AUC of it are undefined."


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
    return (
        "the labels or the predictions are of one class only"
        if names
        else "every label of the split is the same number"
    )


def _of_classes(p: Predictions) -> dict[str, Any]:
    names, positive = p.target.names, p.target.positive
    support = margins(p)[0]
    frequent = sorted(p.rankings, key=lambda i: -support[i])[:CURVES]
    content: dict[str, Any] = {
        "classes": _by_class(p),
        **_confusion(p),
        "curves": {names[i]: p.rankings[i].curves() for i in sorted(frequent) if p.rankings[i].defined},
        "calibration": _calibration(p),
    }
    if p.target.binary:
        content["positive_class"] = names[positive]
        if p.rankings[positive].defined:
            content["thresholds"] = _thresholds(p.rankings[positive])
    return content


def _by_class(p: Predictions) -> list[dict[str, Any]]:
    """Support, precision, recall, F1 and AUC of each class; None: undefined, since the divisor is 0."""
    rows = []
    for i, (name, support, predicted, correct) in enumerate(zip(p.target.names, *margins(p), strict=False)):
        ranking = p.rankings.get(p.target.positive if p.target.binary else i)  # of two classes, both areas are the same
        rows.append(
            {
                "class": name,
                "support": float(support),
                "predicted": float(predicted),
                "precision": quotient(float(correct), float(predicted)),
                "recall": quotient(float(correct), float(support)),
                "f1": quotient(2 * float(correct), float(support + predicted)),
                "auc": ranking.auc() if ranking is not None and ranking.defined else None,
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
    complete = len(shown) == classes
    return {
        "confusion": {"classes": [names[i] for i in shown], "matrix": matrix.tolist(), "complete": complete},
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
    """The result of each threshold, and that of the one with the highest F1."""
    return {"table": [ranking.at(threshold) for threshold in TABLE], "best_f1": ranking.at(ranking.best_f1())}


def _of_values(p: Predictions) -> dict[str, Any]:
    labels, values = p.label, p.score
    residuals = values - labels
    # The outermost hundredths would leave the histogram one bar: they are counted in its first and last one.
    low, high = np.quantile(residuals, [0.005, 0.995])
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, edges = np.histogram(np.clip(residuals, low, high), BARS, (low, high))
    quantiles = dict(zip(map(str, QUANTILES), np.quantile(residuals, QUANTILES).tolist(), strict=True))
    dots = np.linspace(0, len(labels) - 1, min(DOTS, len(labels))).astype(int)  # the split is shuffled
    return {
        "residuals": {
            "quantiles": quantiles,
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
