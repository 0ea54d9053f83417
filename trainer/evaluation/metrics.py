"""The metrics of a table of predictions, by their definitions in scikit-learn, and how sure their differences are.

The difference of two models on the same rows is paired: both models are wrong on most of the same rows, and these say
nothing about which is the better one. Its standard error is

- of a mean over the rows (log loss, mean absolute error) that of the mean of the rows' differences;
- of accuracy that of Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial proportions
  based on paired data" (2012): two made-up rows, on each of which one model alone is right, keep 20 rows on which both
  agree from looking like certainty;
- of all other metrics by the jackknife over up to 40 random groups of rows (Efron and Tibshirani, "An Introduction to
  the Bootstrap", 1993, chapter 11).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainer.evaluation.predictions import Predictions, PredictionTarget
from trainer.evaluation.ranking import quotient

CALIBRATION_BINS = 10

# By metric, of each row the value whose weighted mean it is.
ROW_VALUES: Mapping[str, Callable[[Predictions], np.ndarray]] = {
    "accuracy": lambda p: (p.label == p.predicted).astype(np.float64),
    "log_loss": lambda p: p.loss,
    "brier_score": lambda p: p.brier,
    "recall_at_5": lambda p: p.among_five,
    "share_of_the_positive_class": lambda p: p.label == p.target.positive,
    "mean_prediction": lambda p: p.score,
    "mean_label": lambda p: p.label,
    "mean_absolute_error": lambda p: np.abs(p.predicted - p.label),
    "mean_squared_error": lambda p: p.loss,
    "mean_residual": lambda p: p.score - p.label,
}


def margins(p: Predictions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns by class the weight of its rows (support), of the rows predicted as it, and of rows that are both."""
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
    return float((correct[occurs] / support[occurs]).mean())


def _f1(p: Predictions, *, weighted: bool) -> float:
    """The mean F1 of the classes that occur or are predicted, all equally or by their support."""
    support, predicted, correct = margins(p)
    present = (support + predicted) > 0
    f1 = 2 * correct[present] / (support + predicted)[present]
    return float(f1 @ support[present] / support.sum()) if weighted else float(f1.mean())


def _matthews(p: Predictions) -> float | None:
    """The correlation of labels and predictions; None where either is of one class.

    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.
    """
    support, predicted, correct = margins(p)
    total = support.sum()
    spread = (total**2 - predicted @ predicted) * (total**2 - support @ support)
    return float((correct.sum() * total - support @ predicted) / math.sqrt(spread)) if spread > 0 else None


def _of_positive(p: Predictions, divisor: int) -> float | None:
    """The correct rows of the positive class among those with its label (0), or those predicted as it (1)."""
    sums = margins(p)
    return quotient(sums[2][p.target.positive], sums[divisor][p.target.positive])


def _area(p: Predictions, *, of_roc: bool) -> float | None:
    ranking = p.rankings[p.target.positive]
    return None if not ranking.defined else ranking.auc() if of_roc else ranking.average_precision()


def _mean_area(p: Predictions) -> float | None:
    areas = [ranking.auc() for ranking in p.rankings.values() if ranking.defined]
    return float(np.mean(areas)) if areas else None


def _balanced_log_loss(p: Predictions) -> float | None:
    factors = p.weight * np.asarray(p.target.class_weights)[p.label]
    return quotient(float(factors @ p.loss), float(factors.sum()))


def _most_frequent(p: Predictions) -> float:
    support, _, _ = margins(p)
    return float(support.max() / support.sum())


def calibration_bins(p: Predictions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the weight of the rows in ten bins of the probability, and with it their probability and what came true.

    As scikit-learn's `calibration_curve` with `strategy="uniform"`.
    """
    came_true = p.label == (p.target.positive if p.target.binary else p.predicted)
    bins = np.searchsorted(np.linspace(0, 1, CALIBRATION_BINS + 1)[1:-1], p.score)
    columns = (p.weight, p.weight * p.score, p.weight * came_true)
    weight, probability, true = (np.bincount(bins, column, CALIBRATION_BINS) for column in columns)
    return weight, probability, true


def _calibration_error(p: Predictions) -> float:
    """The mean distance of probability and share over the rows.

    Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015.
    """
    weight, probability, true = calibration_bins(p)
    return float(np.abs(probability - true).sum() / weight.sum())


def _deviation(p: Predictions) -> float:
    """The standard deviation of the labels; 0 where rounding alone tells them apart."""
    mean = p.weight @ p.label / p.weight.sum()
    deviation = math.sqrt(p.weight @ (p.label - mean) ** 2 / p.weight.sum())
    return deviation if deviation > abs(1e-12 * mean) else 0.0


def _r2(p: Predictions) -> float | None:
    deviation = _deviation(p)
    return 1 - measure("mean_squared_error", p) / deviation**2 if deviation else None


_OTHER_METRICS: Mapping[str, Callable[[Predictions], float | None]] = {
    "accuracy_of_always_the_most_frequent_class": _most_frequent,
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": lambda p: _f1(p, weighted=False),
    "weighted_f1": lambda p: _f1(p, weighted=True),
    "auc": lambda p: _area(p, of_roc=True),
    "average_precision": lambda p: _area(p, of_roc=False),
    "mean_auc_of_each_class_against_the_rest": _mean_area,
    "precision": lambda p: _of_positive(p, 1),
    "recall": lambda p: _of_positive(p, 0),
    "balanced_log_loss": _balanced_log_loss,
    "expected_calibration_error": _calibration_error,
    "matthews_correlation": _matthews,
    "root_mean_squared_error": lambda p: math.sqrt(measure("mean_squared_error", p)),
    "r2": _r2,
    "deviation_of_the_labels": _deviation,
    "error_of_always_the_mean": lambda p: _deviation(p) or None,
    "median_absolute_error": lambda p: float(np.median(np.abs(p.score - p.label))),
}

# By which two models are compared.
CLASS_METRICS = ("accuracy", "balanced_accuracy", "macro_f1", "auc", "log_loss")
VALUE_METRICS = ("mean_absolute_error", "root_mean_squared_error", "r2")


def measure(name: str, p: Predictions) -> float:
    """Returns a metric of usable rows; NaN where it is undefined.

    Args:
      name: such as `accuracy`; see `CLASS_METRICS` and `VALUE_METRICS`.
      p: the rows.
    """
    weight = p.weight.sum()
    if not weight > 0:
        return math.nan
    if name in ROW_VALUES:
        return float(p.weight @ ROW_VALUES[name](p) / weight)
    value = _OTHER_METRICS[name](p)
    return math.nan if value is None else float(value)


# The metrics of an evaluation during training, by the names that Estimator's heads give them.
OF_CLASSES = {
    "accuracy": "accuracy",
    "accuracy_baseline": "accuracy_of_always_the_most_frequent_class",
    "average_loss": "log_loss",
    "balanced_loss": "balanced_log_loss",
    "auc": "auc",
    "auc_precision_recall": "average_precision",
    "precision": "precision",
    "recall": "recall",
    "label/mean": "share_of_the_positive_class",
    "prediction/mean": "mean_prediction",
    "recall_at_5": "recall_at_5",
}
OF_VALUES = {
    "average_loss": "mean_squared_error",
    "rmse": "root_mean_squared_error",
    "mae": "mean_absolute_error",
    "r2": "r2",
    "rmse_baseline": "deviation_of_the_labels",
    "label/mean": "mean_label",
    "prediction/mean": "mean_prediction",
}
_OF_TWO = {"auc", "auc_precision_recall", "precision", "recall", "label/mean", "prediction/mean"}


def _evaluated(target: PredictionTarget) -> dict[str, str]:
    if not target.names:
        return OF_VALUES
    left_out = set() if target.binary else {*_OF_TWO}
    left_out |= set() if target.class_weights else {"balanced_loss"}
    left_out |= set() if len(target.names) > 5 else {"recall_at_5"}
    return {name: metric for name, metric in OF_CLASSES.items() if name not in left_out}


def metric_names(classes: Sequence[str] | None, class_weights: Sequence[float] = ()) -> tuple[str, ...]:
    """Returns the names of what an evaluation measures, and of the loss of a batch, which Estimator adds.

    Args:
      classes: by id; None for a number.
      class_weights: those of the training.
    """
    return (*_evaluated(PredictionTarget(tuple(classes or ()), class_weights=tuple(class_weights))), "loss")


def evaluation_metrics(p: Predictions) -> dict[str, float]:
    """Returns the metrics of an evaluation by the names of Estimator's heads; NaN where one is undefined.

    All are NaN where a prediction is, so that no such model is selected for being right about the rest.
    """
    usable = bool(p.usable.all())
    return {name: measure(metric, p) if usable else math.nan for name, metric in _evaluated(p.target).items()}


def report_metrics(target: PredictionTarget) -> list[str]:
    """Returns the names of the metrics in a report, in the order in which they are read."""
    if not target.names:
        return [*VALUE_METRICS, "mean_residual", "error_of_always_the_mean", "median_absolute_error"]
    areas = ["auc", "average_precision"] if target.binary else ["mean_auc_of_each_class_against_the_rest"]
    return [
        *("accuracy", "accuracy_of_always_the_most_frequent_class", "balanced_accuracy", "macro_f1", "weighted_f1"),
        *areas,
        "log_loss",
        *(["balanced_log_loss"] if target.class_weights else []),
        *("brier_score", "expected_calibration_error", "matthews_correlation"),
        *(["recall_at_5"] if len(target.names) > 10 else []),
    ]


JACKKNIFE_GROUPS = 40
ONE_SIDED = 1.645  # standard errors: a normal variable is below with 95 %


def standard_error(name: str, model: Predictions, other: Predictions | None = None) -> float:
    """Returns the standard error of a metric, or of its difference from that of another model on the same rows.

    Returns:
      Infinity where the rows are too few for one.
    """
    if other is not None and name == "accuracy":
        return _error_of_shares(model, other)
    if name in ROW_VALUES:
        values = ROW_VALUES[name](model)
        return _error_of_mean(values if other is None else values - ROW_VALUES[name](other), model.weight)
    return _jackknife(
        lambda rows: measure(name, model.take(rows)) - (0 if other is None else measure(name, other.take(rows))),
        model.rows,
    )


def _effective(weights: np.ndarray) -> float:
    """How many rows of equal weight say as much (Kish)."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _error_of_shares(a: Predictions, b: Predictions) -> float:
    rows = _effective(a.weight)
    if rows < 1:
        return math.inf
    a_right, b_right = a.label == a.predicted, b.label == b.predicted
    share = a.weight / a.weight.sum()
    only_a, only_b = float(share @ (a_right & ~b_right)), float(share @ (~a_right & b_right))
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
