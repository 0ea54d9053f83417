"""What each feature alone tells about the label.

For classes it is the area under the ROC curve of one class against the rest (Fawcett, "An introduction to ROC
analysis", 2006), by its equality with the Mann-Whitney statistic (Hanley and McNeil, 1982). For numbers it is a
correlation.

A feature of numbers is taken as a score as it is, which finds what rises or falls with the label, missing values below
or above all others. A feature of strings, and numbers once more in bins, is taken as a score by the share of the class
among its values, which is measured on one half of the rows and judged on the other one: a feature whose values are all
different tells nothing by that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from beam_jobs.leakage.sample import Drawn

LEAST = 30  # rows of a class, and of the rest: fewer are not judged
LEAST_SHARE = 1 / 20  # of all rows: a class that a feature tells alone is then worth a warning
_BINS = 32


@dataclasses.dataclass(frozen=True)
class Told:
    """What a feature alone tells.

    Attributes:
      name: the feature's, or that of a column of a vector.
      measure: "auc" or "correlation".
      value: from 0.5 to 1, or from 0 to 1.
      of: the place of the class that it tells best; -1 for a number.
      overall: the mean of the AUC of all classes, weighted by their rows (Provost and Domingos, 2001).
      classes: those of a share of at least LEAST_SHARE: the place, the AUC and the share of each, the best told first.
    """

    name: str
    measure: str
    value: float
    of: int = -1
    overall: float = 0.0
    classes: tuple[tuple[int, float, float], ...] = ()


def of_classes(
    drawn: Drawn, numbers: Sequence[str], strings: Sequence[str], classes: np.ndarray, weights: np.ndarray
) -> Iterator[Told]:
    """What each feature tells about classes.

    Args:
      drawn: the rows.
      numbers: the names of the features of numbers.
      strings: those of strings.
      classes: int64 `[n]`: the class of each row, from 0 on.
      weights: float64 `[classes]`: how many rows each row of a class stands for.
    """
    count = len(weights)
    sizes = np.bincount(classes, minlength=count)
    judged = np.flatnonzero((sizes >= LEAST) & (sizes.sum() - sizes >= LEAST))
    if not len(judged):
        return
    parts = weights[judged] * sizes[judged]
    shares = parts / (weights * sizes).sum()
    large = np.flatnonzero(shares >= LEAST_SHARE - 1e-9)
    fitting = (drawn.ranks & np.uint64(1)).astype(bool)

    def told(name: str, areas: list[np.ndarray]) -> Told:
        best = np.max(areas, axis=0)[judged]
        place = int(best.argmax())
        common = large[np.argsort(-best[large], kind="stable")].tolist()
        return Told(
            name,
            "auc",
            float(best[place]),
            int(judged[place]),
            float(best @ parts / parts.sum()),
            tuple((int(judged[i]), float(best[i]), float(shares[i])) for i in common),
        )

    for place, name in enumerate(numbers):
        values = drawn.numbers[:, place]
        codes, size = _codes(values)
        if size > 1:
            areas = [_by_rank(score, classes, weights) for score in _scores(values)]
            yield told(name, [*areas, _encoded(codes, size, classes, weights, fitting)])
    for place, name in enumerate(strings):
        distinct, codes = np.unique(drawn.codes[:, place], return_inverse=True)
        if len(distinct) > 1:
            yield told(name, [_encoded(codes, len(distinct), classes, weights, fitting)])


def _scores(values: np.ndarray) -> list[np.ndarray]:
    """Numbers as scores: missing ones below, and above all others."""
    missing = np.isnan(values)
    if not missing.any():
        return [values]
    return [np.where(missing, limit, values) for limit in (-np.inf, np.inf)]


def _codes(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers as bins of about as many rows each, or each value as one if they are few; missing ones are the last."""
    missing = np.isnan(values)
    present = values[~missing]
    edges = np.unique(present)
    if len(edges) > _BINS:
        edges = np.unique(np.quantile(present, np.linspace(0, 1, _BINS + 1)[1:-1], method="lower"))
    codes = np.where(missing, len(edges) + 1, np.searchsorted(edges, values, "right"))
    found, codes = np.unique(codes, return_inverse=True)
    return codes, len(found)


def _by_rank(scores: np.ndarray, classes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The AUC of each class, float64 `[classes]`, whichever direction the score has."""
    _, ranks = np.unique(scores, return_inverse=True)
    table = _table(ranks, int(ranks.max()) + 1, classes, weights)
    areas = _area(table, table.sum(1, keepdims=True) - table)
    return np.maximum(areas, 1 - areas)


def _encoded(codes: np.ndarray, size: int, classes: np.ndarray, weights: np.ndarray, fitting: np.ndarray) -> np.ndarray:
    """The AUC of each class by its share among the rows of a code, measured on some rows and judged on the others."""
    fitted = _table(codes[fitting], size, classes[fitting], weights)
    judged = _table(codes[~fitting], size, classes[~fitting], weights)
    whole = fitted.sum(0)
    shares = (fitted + whole / max(whole.sum(), 1e-300)) / (fitted.sum(1, keepdims=True) + 1)
    order = np.argsort(shares, axis=0)
    shares = np.take_along_axis(shares, order, axis=0)
    ties = np.concatenate([np.zeros((1, len(weights)), bool), shares[1:] == shares[:-1]])
    positive, negative = judged, judged.sum(1, keepdims=True) - judged
    return _area(*(np.take_along_axis(side, order, axis=0) for side in (positive, negative)), ties=ties)


def _table(codes: np.ndarray, size: int, classes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64 `[size, classes]`: the weight of the rows of each code and class."""
    count = len(weights)
    return np.bincount(codes * count + classes, minlength=size * count).reshape(size, count) * weights


def _area(positive: np.ndarray, negative: np.ndarray, *, ties: np.ndarray | None = None) -> np.ndarray:
    """The AUC of columns: weights by ascending score, of a class and of the rest; 0.5 if one of them is empty.

    `ties`: bool, of the same shape: whether a score is that of the row above.
    """
    above = np.cumsum(negative, axis=0)
    start, end = above - negative, above
    if ties is not None:  # equal scores share where they start and end
        start = np.maximum.accumulate(np.where(ties, 0, start), axis=0)
        last = np.concatenate([~ties[1:], np.ones((1, ties.shape[1]), bool)])
        end = np.minimum.accumulate(np.where(last, end, np.inf)[::-1], axis=0)[::-1]
    both = positive.sum(0) * negative.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(both > 0, (positive * (start + end) / 2).sum(0) / both, 0.5)


def of_numbers(drawn: Drawn, numbers: Sequence[str], strings: Sequence[str]) -> Iterator[Told]:
    """What each feature tells about a label that is a number: the larger one of Pearson's and Spearman's correlation.

    Missing values count as the mean of the others, so that a feature which is mostly missing tells little.
    """
    labels = drawn.labels
    if len(labels) < LEAST or labels.min() == labels.max():
        return
    fitting = (drawn.ranks & np.uint64(1)).astype(bool)
    for place, name in enumerate(numbers):
        values = drawn.numbers[:, place].astype(np.float64)
        missing = np.isnan(values)
        if missing.sum() > len(values) - LEAST:
            continue
        ranks = np.where(missing, 0.0, _midranks(np.where(missing, np.inf, values)))
        for some in (values, ranks):
            some[missing] = some[~missing].mean()
        found = max(_correlation(values, labels), _correlation(ranks, _midranks(labels)))
        yield Told(name, "correlation", found, overall=found)
    for place, name in enumerate(strings):
        distinct, codes = np.unique(drawn.codes[:, place], return_inverse=True)
        rows = np.bincount(codes[fitting], minlength=len(distinct))
        sums = np.bincount(codes[fitting], labels[fitting], minlength=len(distinct))
        means = np.where(rows > 0, sums / np.maximum(rows, 1), labels[fitting].mean() if fitting.any() else 0)
        found = _correlation(means[codes[~fitting]], labels[~fitting])
        yield Told(name, "correlation", found, overall=found)


def _midranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value; equal ones share their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Pearson's, without its sign; 0 where one side is constant."""
    if len(left) < LEAST:
        return 0.0
    left, right = left - left.mean(), right - right.mean()
    spread = float(np.sqrt((left * left).sum() * (right * right).sum()))
    return min(1.0, abs(float((left * right).sum())) / spread) if spread > 0 else 0.0
