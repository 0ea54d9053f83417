"""Metrics of two models on the same rows, and how far their difference can be off by chance.

The definitions are those of the reports (`trainer.report.class_metrics`, `trainer.report.value_metrics`). A difference
is paired: both models are wrong on most of the same rows, and these say nothing about which is the better one. Its
standard error is

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
from collections.abc import Callable, Mapping

import numpy as np

from trainer.report.ranking import rank
from trainer.spec.metrics import higher_is_better

GROUPS = 40  # of the jackknife
ONE_SIDED = 1.645  # standard errors: a normal variable is below with 95 %


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model predicts on rows, all `[rows]`.

    Attributes:
      label: class ids, or numbers.
      weight: of each row.
      predicted: class ids; of numbers, the values.
      score: the probability of the second of two classes; else that of the predicted class.
      loss: the log loss of each row; of numbers, the squared residual.
    """

    label: np.ndarray
    weight: np.ndarray
    predicted: np.ndarray
    score: np.ndarray
    loss: np.ndarray

    def take(self, rows: np.ndarray) -> Answers:
        """Those of some rows."""
        return Answers(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))

    @property
    def rows(self) -> int:
        return len(self.label)


Rowwise = Callable[[Answers], np.ndarray]


def _mean(of: Rowwise) -> Callable[[Answers], float]:
    return lambda a: float(a.weight @ of(a) / a.weight.sum()) if a.weight.sum() > 0 else math.nan


def _confusion(a: Answers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Support, predictions and right predictions by class, weighted."""
    classes = int(max(a.label.max(), a.predicted.max())) + 1 if a.rows else 0
    right = a.label == a.predicted
    return tuple(  # type: ignore[return-value]
        np.bincount(ids, weights, classes)
        for ids, weights in ((a.label, a.weight), (a.predicted, a.weight), (a.label, a.weight * right))
    )


def _balanced(a: Answers) -> float:
    support, _, correct = _confusion(a)
    occurs = support > 0
    return float((correct[occurs] / support[occurs]).mean()) if occurs.any() else math.nan


def _macro_f1(a: Answers) -> float:
    support, predicted, correct = _confusion(a)
    present = (support + predicted) > 0
    return float((2 * correct[present] / (support + predicted)[present]).mean()) if present.any() else math.nan


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
    "balanced_accuracy": _balanced,
    "macro_f1": _macro_f1,
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
    groups = min(GROUPS, rows)
    if groups < 2:
        return math.inf
    group = np.random.default_rng(0).permutation(rows) % groups
    values = np.array([of(np.flatnonzero(group != g)) for g in range(groups)])
    if not np.isfinite(values).all():
        return math.inf
    return math.sqrt((groups - 1) / groups * float(((values - values.mean()) ** 2).sum()))
