"""The metrics of predicted classes and numbers, by their definitions in scikit-learn; where one is undefined, why.

`class_content` and `value_content` are of an evaluation of any size, for its report. `METRICS` are the same of rows in
memory, for two models on the same rows, with how far their difference can be off by chance. A difference is paired:
both models are wrong on most of the same rows, and these say nothing about which is the better one. Its standard error
is

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

from trainer.evaluation.predictions import Answers, ClassCollector, Confusion, ValueCollector
from trainer.evaluation.ranking import MOST_CLASSES, TABLE, Ranking, quotient, rank
from trainer.spec.metrics import higher_is_better

CURVES = 12  # classes whose curves are stored and drawn: the most frequent ones
MATRIX = 30  # classes of the confusion matrix that is shown: those with the most mistakes
MISTAKES = 20  # pairs of classes
OF_POSITIVE_CLASS = ("average_precision", "precision", "recall")  # AUC is the same of either class


Margins = tuple[np.ndarray, np.ndarray, np.ndarray]  # by class: as `Confusion.margins` gives them


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
    positive = found.names[found.positive] if found.binary else None
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
            "of": f"the probability of {positive or 'the predicted class'}",
            **found.calibration.content(),
        },
    }
    if positive is not None:
        content["positive_class"] = positive
    if found.binary and curves and not rankings[found.positive].undefined:
        content["thresholds"] = thresholds(rankings[found.positive])
    return content


def summary_content(found: ClassCollector | ValueCollector) -> dict[str, Any]:
    """What summaries are made of. Of many classes, the curves of each would cost too much."""
    return value_content(found) if isinstance(found, ValueCollector) else class_content(found, curves=found.binary)


def metric_names(classes: Sequence[str] | None, class_weights: Sequence[float] = ()) -> tuple[str, ...]:
    """The names of what an evaluation measures, and of the loss of a batch, which Estimator adds.

    Args:
      classes: by id; None for a number.
      class_weights: those of the training.
    """
    nothing = ClassCollector(tuple(classes), class_weights) if classes else ValueCollector()
    return (*evaluation_metrics(nothing, summary_content(nothing)), "loss")


def evaluation_metrics(found: ClassCollector | ValueCollector, content: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation by the names that Estimator's heads give them; NaN where one is undefined.

    All are NaN where a prediction is, so that no such model is selected for being right about the rest.

    Args:
      found: the predictions.
      content: what was measured of them.
    """
    if isinstance(found, ValueCollector):
        values = _value_evaluation(found)
    else:
        metrics = content["metrics"]
        values = {
            "accuracy": metrics["accuracy"],
            "accuracy_baseline": metrics["accuracy_of_always_the_most_frequent_class"],
            "average_loss": metrics["log_loss"],
        }
        if found.class_weights:
            values["balanced_loss"] = metrics["balanced_log_loss"]
        if found.binary:
            positive = content["classes"][found.positive]
            probability, share = found.calibration.means()
            values |= {
                "auc": metrics["auc"],
                "auc_precision_recall": metrics["average_precision"],
                "precision": positive["precision"],
                "recall": positive["recall"],
                "label/mean": share,
                "prediction/mean": probability,
            }
        elif len(found.names) > 5:
            values["recall_at_5"] = quotient(found.top_5, found.weight)
    return {name: math.nan if value is None or found.not_finite else value for name, value in values.items()}


def _value_evaluation(found: ValueCollector) -> dict[str, float | None]:
    weight, label, _, residual, _, square = found.sums.tolist()
    metrics = value_metrics(found).values
    mean = (found.first or 0.0) + label / weight if weight else None
    return {
        "average_loss": square / weight if weight else None,
        "rmse": metrics["root_mean_squared_error"],
        "mae": metrics["mean_absolute_error"],
        "r2": metrics["r2"],
        "rmse_baseline": metrics["error_of_always_the_mean"],
        "label/mean": mean,
        "prediction/mean": None if mean is None else mean + residual / weight,
    }


def thresholds(ranking: Ranking) -> dict[str, Any]:
    """What each threshold gives, and the one with the highest F1."""
    return {"table": [ranking.at(threshold) for threshold in TABLE], "best_f1": ranking.at(ranking.best_f1())}


def class_metrics(found: ClassCollector, rankings: dict[int, Ranking] | None) -> Metrics:
    """The metrics of the whole split; without areas under curves where there are no rankings."""
    metrics = Metrics()
    margins = support, predicted, correct = found.confusion.margins()
    total = found.weight
    nothing = "no row has a prediction" if found.rows else "the split has no rows"
    rows = {"otherwise": nothing}
    metrics.put("accuracy", quotient(float(correct.sum()), total), **rows)
    metrics.put("accuracy_of_always_the_most_frequent_class", quotient(float(support.max()), total), **rows)
    metrics.put("balanced_accuracy", balanced_accuracy(margins), **rows)
    metrics.put("macro_f1", macro_f1(margins), **rows)
    present = (support + predicted) > 0
    f1 = 2 * correct[present] / (support + predicted)[present]
    metrics.put("weighted_f1", quotient(float(f1 @ support[present]), total), **rows)
    if rankings is not None:
        _put_areas(metrics, found, rankings, nothing)
    metrics.put("log_loss", quotient(found.loss, total), **rows)
    if found.class_weights:
        weight, loss = found.balanced.tolist()
        metrics.put("balanced_log_loss", quotient(loss, weight), **rows)
    metrics.put("brier_score", quotient(found.brier, total), **rows)
    metrics.put("expected_calibration_error", found.calibration.error(), **rows)
    why = "the labels or the predictions are of one class only, or there are no rows"
    metrics.put("matthews_correlation", matthews(support, predicted, correct), otherwise=why)
    if len(found.names) > 10:
        metrics.put("recall_at_5", quotient(found.top_5, total), **rows)
    return metrics


def balanced_accuracy(margins: Margins) -> float | None:
    """The mean recall of the classes that occur; None: there are no rows."""
    support, _, correct = margins
    occurs = support > 0
    return float((correct[occurs] / support[occurs]).mean()) if occurs.any() else None


def macro_f1(margins: Margins) -> float | None:
    """The mean F1 of the classes that occur or are predicted; None: there are no rows."""
    support, predicted, correct = margins
    present = (support + predicted) > 0
    return float((2 * correct[present] / (support + predicted)[present]).mean()) if present.any() else None


def _put_areas(metrics: Metrics, found: ClassCollector, rankings: dict[int, Ranking], nothing: str) -> None:
    if found.binary:
        ranking = rankings[found.positive]
        why = ranking.undefined
        if found.weight and why:
            only = found.names[found.positive if why.startswith("every") else 1 - found.positive]
            why = f"every row of the split is of the class {only!r}, and a curve needs rows of both"
        metrics.put("auc", None if why else ranking.auc(), otherwise=why or nothing)
        metrics.put("average_precision", None if why else ranking.average_precision(), otherwise=why or nothing)
        if not why and not ranking.exact:
            metrics.put("auc_is_off_by_at_most", ranking.auc_error(), otherwise="")
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
        ranking = rankings.get(found.positive if found.binary else i)  # of two classes, both areas are the same
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


BARS = 40  # of the histogram of residuals
DOTS = 1000  # rows in the picture of predictions against labels
GROUPS = 10  # of rows by their prediction
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def value_metrics(found: ValueCollector) -> Metrics:
    """The metrics of the whole split."""
    metrics = Metrics()
    weight, label, squared, residual, size, square = found.sums.tolist()
    nothing = "no row has a prediction" if found.rows else "the split has no rows"
    spread = squared - label**2 / weight if weight else 0.0
    metrics.put("mean_absolute_error", quotient(size, weight), otherwise=nothing)
    metrics.put("root_mean_squared_error", math.sqrt(square / weight) if weight else None, otherwise=nothing)
    same = "every label of the split is the same number" if weight else nothing
    r2 = 1 - square / spread if spread > 1e-12 * max(squared, 1e-300) else None
    metrics.put("r2", r2, otherwise=same)
    metrics.put("mean_residual", quotient(residual, weight), otherwise=nothing)
    deviation = math.sqrt(spread / weight) if weight and spread > 0 else None
    metrics.put("error_of_always_the_mean", deviation, otherwise=same)
    return metrics


def value_content(found: ValueCollector) -> dict[str, Any]:
    """Everything about an evaluation of numbers, as JSON holds it: metrics, residuals, predictions by group."""
    metrics = value_metrics(found)
    kept = found.kept
    usable = np.isfinite(kept.loss)
    labels = kept.label[usable].astype(np.float64)
    values = kept.score[usable].astype(np.float64)
    content: dict[str, Any] = {"kind": "values", "metrics": metrics.values, "undefined": metrics.undefined}
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


Rowwise = Callable[[Answers], np.ndarray]


def _mean(of: Rowwise) -> Callable[[Answers], float]:
    return lambda a: float(a.weight @ of(a) / a.weight.sum()) if a.weight.sum() > 0 else math.nan


def _of_margins(of: Callable[[Margins], float | None]) -> Callable[[Answers], float]:
    def metric(a: Answers) -> float:
        confusion = Confusion(int(max(a.label.max(), a.predicted.max())) + 1 if a.rows else 0)
        confusion.add(a.label, a.predicted, a.weight)
        value = of(confusion.margins())
        return math.nan if value is None else value

    return metric


def _auc(a: Answers) -> float:
    ranking = rank(a.score, a.label == 1, a.weight)
    return math.nan if ranking.undefined else ranking.auc()


def _r2(a: Answers) -> float:
    weight = a.weight.sum()
    mean = a.weight @ a.label / weight if weight > 0 else math.nan
    spread = float(a.weight @ (a.label - mean) ** 2)
    return 1 - float(a.weight @ a.loss) / spread if spread > 0 else math.nan


_ROWWISE: Mapping[str, Rowwise] = {
    "accuracy": lambda a: (a.label == a.predicted).astype(np.float64),
    "log_loss": lambda a: a.loss,
    "mean_absolute_error": lambda a: np.abs(a.predicted - a.label),
}
CLASS_METRICS: Mapping[str, Callable[[Answers], float]] = {
    "accuracy": _mean(_ROWWISE["accuracy"]),
    "balanced_accuracy": _of_margins(balanced_accuracy),
    "macro_f1": _of_margins(macro_f1),
    "auc": _auc,
    "log_loss": _mean(_ROWWISE["log_loss"]),
}
VALUE_METRICS: Mapping[str, Callable[[Answers], float]] = {
    "root_mean_squared_error": lambda a: math.sqrt(_mean(lambda a: a.loss)(a)),
    "mean_absolute_error": _mean(_ROWWISE["mean_absolute_error"]),
    "r2": _r2,
}
METRICS: Mapping[str, Callable[[Answers], float]] = {**CLASS_METRICS, **VALUE_METRICS}


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


def difference(name: str, candidate: Answers, serving: Answers) -> Difference:
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


def own_error(name: str, answers: Answers) -> float:
    """The standard error of one model's metric."""
    if name in _ROWWISE:
        return _error_of_mean(_ROWWISE[name](answers), answers.weight)
    return _jackknife(lambda rows: METRICS[name](answers.take(rows)), answers.rows)


def _effective(weights: np.ndarray) -> float:
    """How many rows of equal weight say as much (Kish)."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _error_of_shares(a: Answers, b: Answers) -> float:
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
