"""Judges what each column alone tells about the label, on a sample of rows: for the guard of jobs, and for `init`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from schemas.profile.roc import roc_areas, roc_areas_of_counts

LEAST = 30  # rows of a class, and of the rest: fewer are not judged
LEAST_SHARE = 1 / 20  # of all rows: a class that a feature tells alone is then worth a warning
_BINS = 32  # of a column of numbers
_LARGEST_TABLE = 1 << 23  # values times classes: a column of more distinct values tells nothing
_LEAST_ERRORS = 10  # of a constant guess: how many of fewer are avoided is chance


@dataclasses.dataclass(frozen=True)
class SampledRows:
    """Rows in random order.

    Attributes:
      labels: `[n]`: float64 numbers, or int64 classes from 0 on.
      numbers: float32 `[n, width]`: the columns of numbers, side by side; NaN for a missing one.
      codes: uint64 `[n, columns]`: hashes of strings, 0 for a missing one.
      fitting: bool `[n]`: the random half on which guesses are fitted; they are judged on the other half.
    """

    labels: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray
    fitting: np.ndarray


@dataclasses.dataclass(frozen=True)
class LabelSignal:
    """What a column alone tells.

    Attributes:
      name: the feature's, or that of a column of a vector.
      measure: "auc" or "correlation".
      value: from 0.5 to 1, or from 0 to 1.
      rows: how many rows it was judged on: all, or those that have a value.
      of: the place of the class that it tells best; -1 for a number.
      overall: the mean of the AUC of all classes, weighted by their rows (Provost and Domingos, 2001).
      classes: place, AUC and share of each class with a share of at least LEAST_SHARE, the best first.
      errors_avoided: the share of a constant guess's errors that the best guess for each value avoids.
      avoided_by_presence: the same for a guess by whether there is a value; 0 if there always is.
    """

    name: str
    measure: str
    value: float
    rows: int
    of: int = -1
    overall: float = 0.0
    classes: tuple[tuple[int, float, float], ...] = ()
    errors_avoided: float = 0.0
    avoided_by_presence: float = 0.0

    @property
    def most(self) -> float:
        """What it tells about all classes, or about a common one, whichever is more."""
        return max([self.overall, *(auc for _, auc, _ in self.classes)])


def label_signals(rows: SampledRows, numbers: Sequence[str], strings: Sequence[str]) -> Iterator[LabelSignal]:
    """Judges what each column tells about the label; columns of one value and labels too rare to judge are left out.

    A missing value counts as a value, or the rows that have one are judged alone, whichever tells more. Of a label that
    is a number, columns of numbers are judged on the rows that have a value.

    Args:
      rows: the sample.
      numbers: the names of the columns of numbers.
      strings: the names of the columns of strings.
    """
    of_classes = rows.labels.dtype == np.int64
    for place, name in enumerate((*numbers, *strings)):
        values = rows.numbers[:, place] if place < len(numbers) else None
        if values is not None:
            present, codes = ~np.isnan(values), bins(values, _BINS)
        else:
            hashes = rows.codes[:, place - len(numbers)]
            present, codes = hashes != 0, np.unique(hashes, return_inverse=True)[1]
        parts = [present] if present.all() else [np.ones(len(present), bool), present]
        judge = _class_signal if of_classes else _number_signal
        signals = [
            judge(name, rows.labels[part], codes[part], rows.fitting[part], None if values is None else values[part])
            for part in (parts if of_classes or values is None else [present])
        ]
        best = max(filter(None, signals), key=lambda signal: signal.most, default=None)
        if best is not None and of_classes and len(parts) > 1:
            tables = _tables(present.astype(np.int64), rows.labels, rows.fitting)
            best = dataclasses.replace(best, avoided_by_presence=_errors_avoided(*tables))
        if best is not None:
            yield best


def _class_signal(
    name: str, classes: np.ndarray, codes: np.ndarray, fitting: np.ndarray, values: np.ndarray | None
) -> LabelSignal | None:
    """What a column of codes tells about classes: a class's score is its share among the rows of a code.

    Scores are fitted on half of the rows, and judged on the others. Numbers, whose codes are bins, are judged by their
    order, too, with missing ones below or above all others.
    """
    if not len(codes) or codes.min() == codes.max():
        return None
    sizes = np.bincount(classes)
    judged = np.flatnonzero((sizes >= LEAST) & (sizes.sum() - sizes >= LEAST))
    if not len(judged) or (int(codes.max()) + 1) * len(sizes) > _LARGEST_TABLE:
        return None
    fitted, truth = _tables(codes, classes, fitting)
    scores = (fitted + fitted.sum(0) / max(fitted.sum(), 1)) / (fitted.sum(1, keepdims=True) + 1)
    positive = truth[:, judged]
    areas = roc_areas_of_counts(scores[:, judged], positive, truth.sum(1, keepdims=True) - positive)
    areas = np.nan_to_num(areas, nan=0.5)  # the half that is judged has no row of the class, or no other
    if values is not None:
        absent = np.isnan(values)
        for missing in (-np.inf, np.inf) if absent.any() else (0.0,):
            by_order = roc_areas(np.where(absent, missing, values), classes, len(sizes))[judged]
            areas = np.maximum(areas, np.maximum(by_order, 1 - by_order))  # whichever direction the numbers have
    shares = sizes[judged] / sizes.sum()
    best = int(areas.argmax())
    large = np.flatnonzero(shares >= LEAST_SHARE - 1e-9)
    common = large[np.argsort(-areas[large], kind="stable")].tolist()
    return LabelSignal(
        name,
        "auc",
        float(areas[best]),
        len(classes),
        int(judged[best]),
        float(areas @ shares / shares.sum()),
        tuple((int(judged[i]), float(areas[i]), float(shares[i])) for i in common),
        _errors_avoided(fitted, truth),
    )


def _tables(codes: np.ndarray, classes: np.ndarray, fitting: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of rows of each code and class, float64 `[codes, classes]`: of the half to fit, and of the other."""
    shape = int(codes.max()) + 1, int(classes.max()) + 1
    cells = codes * shape[1] + classes
    fitted, truth = (np.bincount(cells[half], minlength=shape[0] * shape[1]) for half in (fitting, ~fitting))
    return fitted.reshape(shape).astype(np.float64), truth.reshape(shape).astype(np.float64)


def _errors_avoided(fitted: np.ndarray, truth: np.ndarray) -> float:
    """The share of a constant guess's errors that the best guess for each code avoids."""
    usual = int(fitted.sum(0).argmax())
    guesses = np.where(fitted.sum(1) > 0, fitted.argmax(1), usual)
    right, usually_right = truth[np.arange(len(truth)), guesses].sum(), truth[:, usual].sum()
    errors = truth.sum() - usually_right
    return float((right - usually_right) / errors) if errors >= _LEAST_ERRORS else 0.0


def bins(values: np.ndarray, most: int) -> np.ndarray:
    """Sorts numbers into bins of about as many rows, or each value into one if they are few; missing ones are the last.

    Args:
      values: `[n]`, NaN for a missing one.
      most: how many bins there are at most, without that of the missing ones.

    Returns:
      The bin of each number, int64 `[n]`, from 0 on.
    """
    present = np.sort(values[~np.isnan(values)])
    starts = np.unique(present)
    if len(starts) > most:
        starts = np.unique(present[(np.linspace(0, 1, most + 1)[:-1] * len(present)).astype(np.int64)])
    codes = np.searchsorted(starts, values, side="right") - 1  # NaN comes last
    return np.where(np.isnan(values), len(starts), codes)


def _number_signal(
    name: str, labels: np.ndarray, codes: np.ndarray, fitting: np.ndarray, values: np.ndarray | None
) -> LabelSignal | None:
    """The correlation of a label that is a number: with numbers, the larger one of Pearson's and Spearman's; of codes,
    with the mean label of their code, fitted on half of the rows and judged on the others.
    """
    if len(labels) < LEAST or labels.min() == labels.max():
        return None
    if values is not None:
        exact = values.astype(np.float64)
        value = max(_correlation(exact, labels), _correlation(_ranks(exact), _ranks(labels)))
    else:
        rows = np.bincount(codes[fitting], minlength=int(codes.max()) + 1)
        sums = np.bincount(codes[fitting], labels[fitting], minlength=len(rows))
        means = np.where(rows > 0, sums / np.maximum(rows, 1), labels[fitting].mean() if fitting.any() else 0)
        value = _correlation(means[codes[~fitting]], labels[~fitting])
    return LabelSignal(name, "correlation", value, len(labels), overall=value)


def _ranks(values: np.ndarray) -> np.ndarray:
    """The number of rows below each number, and half of that of its equals."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[places]


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Pearson's, without its sign; 0 where one side is constant."""
    if len(left) < LEAST:
        return 0.0
    left, right = left - left.mean(), right - right.mean()
    spread = float(np.sqrt((left * left).sum() * (right * right).sum()))
    return min(1.0, abs(float((left * right).sum())) / spread) if spread > 0 else 0.0
