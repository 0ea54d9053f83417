"""The metrics of a table of predictions, by their definitions in scikit-learn; where one is undefined, why.

`class_content` and `value_content` are all that a report says of an evaluation. `METRICS` are those by which two models
are compared on the same rows, with how far their difference can be off by chance. A difference is paired: both models
are wrong on most of the same rows, and these say nothing about which is the better one. Its standard error is

- of a mean over the rows (log loss, mean absolute error) that of the mean of the rows' differences;
- of accuracy that of Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial proportions
  based on paired data" (2012): two made-up rows, on each of which one model alone is right, keep 20 rows on which both
  agree from looking like certainty;
- of all others by the jackknife over up to 40 random groups of rows (Efron and Tibshirani, "An Introduction to the
  Bootstrap", 1993, chapter 11).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.evaluation.predictions import MOST_CLASSES, Predictions, Target
from trainer.evaluation.ranking import TABLE, Ranking, quotient, rank
from trainer.spec.metrics import higher_is_better

CURVES = 12  # classes whose curves are stored and drawn: the most frequent ones
MATRIX = 30  # classes of the confusion matrix that is shown: those with the most mistakes
MISTAKES = 20  # pairs of classes
CALIBRATION_BINS = 10
BARS = 40  # of the histogram of residuals
DOTS = 1000  # rows in the picture of predictions against labels
GROUPS = 10  # of rows by their prediction
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

Rowwise = Callable[[Predictions], np.ndarray]
Metric = Callable[[Predictions], float]


def _mean(of: Rowwise) -> Metric:
    return lambda p: float(p.weight @ of(p) / p.weight.sum()) if p.weight.sum() > 0 else math.nan


def margins(p: Predictions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By class: the weight of its rows (support), of the rows predicted as it, and of those that are both."""
    classes = max(len(p.target.names), int(max(p.label.max(), p.predicted.max())) + 1 if p.rows else 0)
    right = p.label == p.predicted
    return (
        np.bincount(p.label, p.weight, classes),
        np.bincount(p.predicted, p.weight, classes),
        np.bincount(p.label[right], p.weight[right], classes),
    )


def _balanced_accuracy(p: Predictions) -> float:
    """The mean recall of the classes that occur."""
    support, _, correct = margins(p)
    occurs = support > 0
    return float((correct[occurs] / support[occurs]).mean()) if occurs.any() else math.nan


def _f1(p: Predictions, *, weighted: bool) -> float:
    """The mean F1 of the classes that occur or are predicted, each as much as the others or by its support."""
    support, predicted, correct = margins(p)
    present = (support + predicted) > 0
    if not present.any():
        return math.nan
    f1 = 2 * correct[present] / (support + predicted)[present]
    return float(f1 @ support[present] / support.sum()) if weighted else float(f1.mean())


def _auc(p: Predictions) -> float:
    ranking = rank(p.score, p.label == p.target.positive, p.weight)
    return math.nan if ranking.undefined else ranking.auc()


def _r2(p: Predictions) -> float:
    mean = _mean(lambda p: p.label)(p)
    spread = float(p.weight @ (p.label - mean) ** 2)
    negligible = float(p.weight.sum()) * (1e-12 * mean) ** 2  # what rounding leaves where all labels are the same
    return 1 - float(p.weight @ p.loss) / spread if spread > negligible else math.nan


_ROWWISE: Mapping[str, Rowwise] = {
    "accuracy": lambda p: (p.label == p.predicted).astype(np.float64),
    "log_loss": lambda p: p.loss,
    "mean_absolute_error": lambda p: np.abs(p.predicted - p.label),
}
CLASS_METRICS: Mapping[str, Metric] = {
    "accuracy": _mean(_ROWWISE["accuracy"]),
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": lambda p: _f1(p, weighted=False),
    "auc": _auc,
    "log_loss": _mean(_ROWWISE["log_loss"]),
}
VALUE_METRICS: Mapping[str, Metric] = {
    "mean_absolute_error": _mean(_ROWWISE["mean_absolute_error"]),
    "root_mean_squared_error": lambda p: math.sqrt(_mean(lambda p: p.loss)(p)),
    "r2": _r2,
}
METRICS: Mapping[str, Metric] = {**CLASS_METRICS, **VALUE_METRICS}


@dataclasses.dataclass
class Metrics:
    """Metrics by name, in the order in which they are read; those without a value with the reason instead."""

    values: dict[str, float | None] = dataclasses.field(default_factory=dict)
    undefined: dict[str, str] = dataclasses.field(default_factory=dict)

    def put(self, name: str, value: float | None, *, otherwise: str) -> None:
        """Adds a metric; `otherwise` says why there is none if the value is None or not finite."""
        defined = value is not None and math.isfinite(value)
        self.values[name] = value if defined else None
        if not defined:
            self.undefined[name] = otherwise


def content_of(p: Predictions) -> dict[str, Any]:
    """Everything about an evaluation as JSON holds it."""
    return class_content(p) if p.target.names else value_content(p)


def class_content(p: Predictions) -> dict[str, Any]:
    """Everything about an evaluation of classes, as JSON holds it: metrics, classes, confusion, curves, calibration."""
    names, target = p.target.names, p.target
    usable = p.take(p.usable)
    support, predicted, correct = margins(usable)
    ranked = rankings(p, usable)
    metrics = class_metrics(p.rows, usable, ranked)
    true, guesses, weights = confused_pairs(usable)
    shown = np.arange(len(names))
    if len(names) > MATRIX:
        occurs = np.flatnonzero(support + predicted)
        mistakes = (support + predicted - 2 * correct)[occurs]
        shown = np.sort(occurs[np.argsort(-mistakes, kind="stable")][:MATRIX])
    wrong = np.flatnonzero(true != guesses)
    worst = wrong[np.argsort(-weights[wrong], kind="stable")][:MISTAKES]
    frequent = sorted(ranked, key=lambda i: -support[i])[:CURVES]
    positive = names[target.positive] if target.binary else None
    content: dict[str, Any] = {
        "kind": "classes",
        "metrics": metrics.values,
        "undefined": metrics.undefined,
        "classes": by_class(usable, ranked),
        "confusion": {
            "classes": [names[i] for i in shown],
            "matrix": _matrix(true, guesses, weights, shown, len(names)).tolist(),
            "complete": len(shown) == len(names),
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
        "curves": {names[i]: ranked[i].curves() for i in sorted(frequent)},
        "calibration": {"of": f"the probability of {positive or 'the predicted class'}", **calibration(usable)},
    }
    if positive is not None:
        content["positive_class"] = positive
        if ranked and not ranked[target.positive].undefined:
            content["thresholds"] = thresholds(ranked[target.positive])
    return content


def confused_pairs(p: Predictions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs that occur: true class, predicted class and the weight of their rows, each `[pairs]`."""
    classes = max(len(p.target.names), 1)
    codes, place = np.unique(p.label.astype(np.int64) * classes + p.predicted, return_inverse=True)
    return codes // classes, codes % classes, np.bincount(place, p.weight, len(codes))


def _matrix(true: np.ndarray, guesses: np.ndarray, weights: np.ndarray, ids: np.ndarray, classes: int) -> np.ndarray:
    """The part of the confusion matrix with these classes, true by predicted, `[len(ids), len(ids)]`."""
    place = np.full(classes, -1)
    place[ids] = np.arange(len(ids))
    inside = (place[true] >= 0) & (place[guesses] >= 0)
    codes = place[true[inside]] * len(ids) + place[guesses[inside]]
    return np.bincount(codes, weights[inside], len(ids) ** 2).reshape(len(ids), len(ids))


def rankings(p: Predictions, usable: Predictions) -> dict[int, Ranking]:
    """By class, the rows by their score of it: of two classes the positive one; of more, those that have scores."""
    if p.target.binary:
        return {p.target.positive: rank(usable.score, usable.label == p.target.positive, usable.weight)}
    if p.probabilities is None or len(p.target.names) > MOST_CLASSES:
        return {}
    rows = np.flatnonzero(p.usable[: len(p.probabilities)])
    label, weight, scores = p.label[rows], p.weight[rows], p.probabilities[rows]
    return {i: rank(scores[:, i], label == i, weight) for i in range(len(p.target.names))}


def calibration(p: Predictions) -> dict[str, Any]:
    """Rows in ten equally wide bins of their probability (scikit-learn's `calibration_curve`, `strategy="uniform"`).

    With the expected calibration error, the mean distance of probability and share over the rows (Naeini et al.,
    "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015); None: there are no rows.
    """
    came_true = p.label == (p.target.positive if p.target.binary else p.predicted)
    bins = np.searchsorted(np.linspace(0, 1, CALIBRATION_BINS + 1)[1:-1], p.score)
    columns = (p.weight, p.weight * p.score, p.weight * came_true)
    weight, probability, true = (np.bincount(bins, column, CALIBRATION_BINS) for column in columns)
    used = weight > 0
    return {
        "expected_calibration_error": quotient(float(np.abs(probability - true).sum()), float(weight.sum())),
        "weight": weight[used].tolist(),
        "mean_probability": (probability[used] / weight[used]).tolist(),
        "share": (true[used] / weight[used]).tolist(),
    }


def metric_names(classes: Sequence[str] | None, class_weights: Sequence[float] = ()) -> tuple[str, ...]:
    """The names of what an evaluation measures, and of the loss of a batch, which Estimator adds.

    Args:
      classes: by id; None for a number.
      class_weights: those of the training.
    """
    target = Target(tuple(classes or ()), class_weights=tuple(class_weights))
    return (*evaluation_metrics(Predictions.joined(target, [])), "loss")


def evaluation_metrics(p: Predictions) -> dict[str, float]:
    """The metrics of an evaluation by the names that Estimator's heads give them; NaN where one is undefined.

    All are NaN where a prediction is, so that no such model is selected for being right about the rest.
    """
    values: dict[str, float | None]
    bad = not p.usable.all()
    p = p.take(p.usable) if bad else p
    if not p.target.names:
        mean = _mean(lambda p: p.label)(p)
        values = {
            "average_loss": _mean(lambda p: p.loss)(p),
            **{name: VALUE_METRICS[long](p) for name, long in _SHORT.items()},
            "rmse_baseline": math.sqrt(_mean(lambda p: (p.label - mean) ** 2)(p)),
            "label/mean": mean,
            "prediction/mean": _mean(lambda p: p.score)(p),
        }
    else:
        support, predicted, correct = margins(p)
        values = {
            "accuracy": CLASS_METRICS["accuracy"](p),
            "accuracy_baseline": quotient(float(support.max()), float(support.sum())),
            "average_loss": CLASS_METRICS["log_loss"](p),
        }
        positive = p.target.positive
        if p.target.class_weights:
            values["balanced_loss"] = _balanced_log_loss(p)
        if p.target.binary:
            ranking = rank(p.score, p.label == positive, p.weight)
            values |= {
                "auc": None if ranking.undefined else ranking.auc(),
                "auc_precision_recall": None if ranking.undefined else ranking.average_precision(),
                "precision": quotient(correct[positive], predicted[positive]),
                "recall": quotient(correct[positive], support[positive]),
                "label/mean": _mean(lambda p: p.label == positive)(p),
                "prediction/mean": _mean(lambda p: p.score)(p),
            }
        elif len(p.target.names) > 5:
            values["recall_at_5"] = _recall_at_5(p)
    return {name: math.nan if value is None or bad else float(value) for name, value in values.items()}


_SHORT = {"rmse": "root_mean_squared_error", "mae": "mean_absolute_error", "r2": "r2"}


def _balanced_log_loss(p: Predictions) -> float | None:
    factors = p.weight * np.asarray(p.target.class_weights)[p.label]
    return quotient(float(factors @ p.loss), float(factors.sum()))


def _recall_at_5(p: Predictions) -> float:
    return _mean(lambda p: np.zeros(p.rows) if p.among_five is None else p.among_five)(p)


def thresholds(ranking: Ranking) -> dict[str, Any]:
    """What each threshold gives, and the one with the highest F1."""
    return {"table": [ranking.at(threshold) for threshold in TABLE], "best_f1": ranking.at(ranking.best_f1())}


def class_metrics(rows: int, p: Predictions, ranked: dict[int, Ranking]) -> Metrics:
    """The metrics of the whole split.

    Args:
      rows: how many rows there are with those that are not usable.
      p: the usable ones.
      ranked: by class.
    """
    metrics = Metrics()
    support, predicted, correct = margins(p)
    total = float(p.weight.sum())
    nothing = "no row has a prediction" if rows else "the split has no rows"
    put = metrics.put
    put("accuracy", CLASS_METRICS["accuracy"](p), otherwise=nothing)
    put("accuracy_of_always_the_most_frequent_class", quotient(float(support.max()), total), otherwise=nothing)
    put("balanced_accuracy", _balanced_accuracy(p), otherwise=nothing)
    put("macro_f1", _f1(p, weighted=False), otherwise=nothing)
    put("weighted_f1", _f1(p, weighted=True) if total else None, otherwise=nothing)
    _put_areas(metrics, p, ranked, nothing)
    put("log_loss", CLASS_METRICS["log_loss"](p), otherwise=nothing)
    if p.target.class_weights:
        put("balanced_log_loss", _balanced_log_loss(p), otherwise=nothing)
    put("brier_score", _mean(lambda p: p.loss if p.brier is None else p.brier)(p), otherwise=nothing)
    put("expected_calibration_error", calibration(p)["expected_calibration_error"], otherwise=nothing)
    why = "the labels or the predictions are of one class only, or there are no rows"
    put("matthews_correlation", matthews(support, predicted, correct), otherwise=why)
    if len(p.target.names) > 10:
        put("recall_at_5", _recall_at_5(p), otherwise=nothing)
    return metrics


def _put_areas(metrics: Metrics, p: Predictions, ranked: dict[int, Ranking], nothing: str) -> None:
    names, positive = p.target.names, p.target.positive
    rows = p.weight.sum() > 0
    if p.target.binary:
        ranking = ranked[positive]
        why = ranking.undefined
        if rows and why:
            only = names[positive if why.startswith("every") else 1 - positive]
            why = f"every row of the split is of the class {only!r}, and a curve needs rows of both"
        metrics.put("auc", None if why else ranking.auc(), otherwise=why or nothing)
        metrics.put("average_precision", None if why else ranking.average_precision(), otherwise=why or nothing)
        return
    areas = [ranking.auc() for ranking in ranked.values() if ranking.undefined is None]
    why = "the split has rows of one class only" if rows else nothing
    if not ranked:
        why = f"curves are made of up to {MOST_CLASSES:,} classes, and there are {len(names):,}"
    metrics.put("mean_auc_of_each_class_against_the_rest", float(np.mean(areas)) if areas else None, otherwise=why)


def matthews(support: np.ndarray, predicted: np.ndarray, correct: np.ndarray) -> float | None:
    """The correlation of labels and predictions; None where either is of one class.

    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.
    """
    total = support.sum()
    spread = (total**2 - predicted @ predicted) * (total**2 - support @ support)
    return float((correct.sum() * total - support @ predicted) / math.sqrt(spread)) if spread > 0 else None


def by_class(p: Predictions, ranked: dict[int, Ranking]) -> list[dict[str, Any]]:
    """Support, precision, recall, F1 and AUC of each class; None: undefined, since the divisor is 0."""
    support, predicted, correct = (x.tolist() for x in margins(p))
    rows = []
    for i, name in enumerate(p.target.names):
        ranking = ranked.get(p.target.positive if p.target.binary else i)  # of two classes, both areas are the same
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


def value_content(p: Predictions) -> dict[str, Any]:
    """Everything about an evaluation of numbers, as JSON holds it: metrics, residuals, predictions by group."""
    usable = p.take(p.usable)
    metrics = Metrics()
    weight = float(usable.weight.sum())
    nothing = "no row has a prediction" if p.rows else "the split has no rows"
    same = "every label of the split is the same number" if weight else nothing
    mean = _mean(lambda p: p.label)(usable)
    deviation = math.sqrt(_mean(lambda p: (p.label - mean) ** 2)(usable))
    metrics.put("mean_absolute_error", VALUE_METRICS["mean_absolute_error"](usable), otherwise=nothing)
    metrics.put("root_mean_squared_error", VALUE_METRICS["root_mean_squared_error"](usable), otherwise=nothing)
    metrics.put("r2", _r2(usable), otherwise=same)
    metrics.put("mean_residual", _mean(lambda p: p.score - p.label)(usable), otherwise=nothing)
    metrics.put("error_of_always_the_mean", deviation if deviation > 0 else None, otherwise=same)
    content: dict[str, Any] = {"kind": "values", "metrics": metrics.values, "undefined": metrics.undefined}
    labels, values = usable.label, usable.score
    if not len(labels):
        return content
    residuals = values - labels
    metrics.put("median_absolute_error", float(np.median(np.abs(residuals))), otherwise="")
    # The outermost hundredths would leave the histogram one bar: they are counted in its first and last one.
    low, high = np.quantile(residuals, [0.005, 0.995])
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, edges = np.histogram(np.clip(residuals, low, high), BARS, (low, high))
    dots = np.linspace(0, len(labels) - 1, min(DOTS, len(labels))).astype(int)  # the split is shuffled
    content["residuals"] = {
        "quantiles": dict(zip(map(str, QUANTILES), np.quantile(residuals, QUANTILES).tolist(), strict=True)),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "rows": len(residuals),
    }
    content["rows_shown"] = {"label": labels[dots].tolist(), "prediction": values[dots].tolist()}
    content["groups"] = [
        {
            "rows": len(group),
            "mean_prediction": float(values[group].mean()),
            "mean_label": float(labels[group].mean()),
            "root_mean_squared_error": float(np.sqrt(np.mean(residuals[group] ** 2))),
        }
        for group in np.array_split(np.argsort(values, kind="stable"), min(GROUPS, len(values)))
    ]
    return content


JACKKNIFE_GROUPS = 40  # of the jackknife
ONE_SIDED = 1.645  # standard errors: a normal variable is below with 95 %


@dataclasses.dataclass(frozen=True)
class Difference:
    """A metric of two models on the same rows.

    Attributes:
      candidate, serving: its values.
      gain: how much better the candidate is, whichever way the metric points; negative: worse.
      error: the standard error of the gain; infinite where the rows are too few for one.
    """

    candidate: float
    serving: float
    gain: float
    error: float


def difference(name: str, candidate: Predictions, serving: Predictions) -> Difference:
    """Compares two models on the same rows, in the same order."""
    metric, sign = METRICS[name], 1.0 if higher_is_better(name) else -1.0
    ours, theirs = metric(candidate), metric(serving)
    if name == "accuracy":
        error = _error_of_shares(candidate, serving)
    elif name in _ROWWISE:
        error = _error_of_mean(_ROWWISE[name](candidate) - _ROWWISE[name](serving), candidate.weight)
    else:
        error = _jackknife(lambda rows: metric(candidate.take(rows)) - metric(serving.take(rows)), candidate.rows)
    return Difference(ours, theirs, sign * (ours - theirs), error)


def own_error(name: str, predictions: Predictions) -> float:
    """The standard error of one model's metric."""
    if name in _ROWWISE:
        return _error_of_mean(_ROWWISE[name](predictions), predictions.weight)
    return _jackknife(lambda rows: METRICS[name](predictions.take(rows)), predictions.rows)


def _effective(weights: np.ndarray) -> float:
    """How many rows of equal weight say as much (Kish)."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _error_of_shares(a: Predictions, b: Predictions) -> float:
    rows = _effective(a.weight)
    if rows < 1:
        return math.inf
    right, other = a.label == a.predicted, b.label == b.predicted
    share = a.weight / a.weight.sum()
    only_a, only_b = float(share @ (right & ~other)), float(share @ (~right & other))
    only_a, only_b = (only_a * rows + 1) / (rows + 2), (only_b * rows + 1) / (rows + 2)
    return math.sqrt((only_a + only_b - (only_a - only_b) ** 2) / (rows + 2))


def _error_of_mean(values: np.ndarray, weights: np.ndarray) -> float:
    rows, total = _effective(weights), float(weights.sum())
    if rows < 2:
        return math.inf
    deviations = values - weights @ values / total
    return math.sqrt(float(weights**2 @ deviations**2)) / total * math.sqrt(rows / (rows - 1))


def _jackknife(of: Callable[[np.ndarray], float], rows: int) -> float:
    """The standard error of a function of rows, leaving out one group after another."""
    groups = min(JACKKNIFE_GROUPS, rows)
    if groups < 2:
        return math.inf
    group = np.random.default_rng(0).permutation(rows) % groups
    values = np.array([of(np.flatnonzero(group != g)) for g in range(groups)])
    if not np.isfinite(values).all():
        return math.inf
    return math.sqrt((groups - 1) / groups * float(((values - values.mean()) ** 2).sum()))
