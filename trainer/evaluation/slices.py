"""Parts of the rows: those with one value of a feature, or with values in a range; and how a model does on them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from schemas.display import readable
from schemas.spec.features import Feature, Numeric, OneHot
from schemas.spec.forms import Dense, Ids, Input
from schemas.spec.table import Schema
from trainer.evaluation.metrics import measure
from trainer.evaluation.predictions import Predictions

LONGEST = 50  # values of a vector that are told apart: not the pixels of an image


@dataclasses.dataclass(frozen=True)
class Part:
    """One value of a feature. `column`: its place in the stored vector; None: the feature holds a single value."""

    feature: str
    column: int | None = None
    name: str = ""


def parts_of(entry: Input, feature: Feature | None) -> Iterator[Part]:
    """The values of a stored feature that can be told apart; none of a bag, of a long vector or of tokens.

    Args:
      entry: the stored feature.
      feature: what the schema declares; None where a custom `preprocessing_fn` made it.
    """
    width = entry.width if isinstance(entry, Dense) else entry.length
    if width == 1:
        yield Part(entry.name, None, entry.name)
    elif width is not None and width <= LONGEST and (isinstance(entry, Dense) or entry.positional):
        refs = feature.refs if isinstance(feature, Numeric) and len(feature.refs) == width else range(width)
        yield from (Part(entry.name, place, f"{entry.name}[{ref}]") for place, ref in enumerate(refs))


def declared_parts(schema: Schema) -> list[str]:
    """The names of the values that the schema's features become, before its vocabularies are known."""
    names = []
    for feature in schema.inputs:
        for entry in feature.inputs(1):
            names += [part.name for part in parts_of(entry, feature) if not hashed(entry, feature)]
    return names


def hashed(entry: Input, feature: Feature | None) -> bool:
    """Whether ids are buckets of a hash, which say nothing to a reader."""
    return (isinstance(entry, Ids) and entry.crossed) or getattr(feature, "hash_buckets", None) is not None


MOST_WORDS = 50  # of a feature that are told apart: the most frequent ones
RANGES = 5  # a number is cut into, by its quantiles
FEW = 12  # distinct numbers: up to here each is a slice of its own
MOST_VALUES = 10_000  # of a feature that is sliced
LISTED = 50  # slices of a feature, those with the most rows
WORST, OF_ONE_FEATURE = 10, 3
LEAST_ROWS, LEAST_SHARE = 30, 0.002  # of a slice among the worst
CERTAIN = 3.0  # standard errors between the loss of such a slice and that of all rows


@dataclasses.dataclass(frozen=True)
class Slicing:
    """How a feature divides rows.

    Attributes:
      name: the feature's.
      values: how many parts there are.
      part: feature values `[rows]` -> part of each row, int64 `[rows]`.
      text: part -> what it is called.
      in_order: whether the parts have an order of their own, in which they are listed.
    """

    name: str
    values: int
    part: Callable[[Mapping[str, np.ndarray]], np.ndarray]
    text: Callable[[int], str]
    in_order: bool = False


def of_ids(part: Part, count: int, text: Callable[[int], str]) -> Slicing:
    """One part for each id."""
    return Slicing(part.name, count, lambda features: np.clip(taken(features, part), 0, count - 1), text)


def of_numbers(part: Part, sample: np.ndarray, text: Callable[[float], str] = lambda x: readable(x, 4)) -> Slicing:
    """One part for each of a few numbers, or for each of five ranges that hold about as many rows of the sample.

    The last part holds missing numbers.
    """
    sample = sample[~np.isnan(sample)]
    distinct = np.unique(sample)
    if len(distinct) <= FEW:
        ends = (distinct[1:] + distinct[:-1]) / 2
        names = [text(float(x)) for x in distinct] or ["any"]
    else:
        ends = np.unique(np.quantile(sample, np.arange(1, RANGES) / RANGES))
        limits = [text(float(x)) for x in ends]
        names = [f"below {limits[0]}", *(f"{a} to {b}" for a, b in itertools.pairwise(limits)), f"from {limits[-1]}"]
    names.append("(missing)")

    def part_of(features: Mapping[str, np.ndarray]) -> np.ndarray:
        values = taken(features, part)
        return np.where(np.isnan(values), len(names) - 1, np.searchsorted(ends, values, "right"))

    return Slicing(part.name, len(names), part_of, names.__getitem__, in_order=True)


def of_words(part: Part, sample: np.ndarray) -> Slicing:
    """One part for each of the most frequent words of the sample, `bytes` objects, and one for all other words."""
    counts = collections.Counter(word.strip() for word in sample)
    codes = {word: code for code, (word, _) in enumerate(counts.most_common(MOST_WORDS))}
    names = [word.decode("utf-8", "replace") or "(missing)" for word in codes]

    def part_of(features: Mapping[str, np.ndarray]) -> np.ndarray:
        values = taken(features, part)
        return np.fromiter((codes.get(word.strip(), len(names)) for word in values), np.int64, len(values))

    return Slicing(part.name, len(names) + 1, part_of, [*names, "(all other values)"].__getitem__)


def taken(features: Mapping[str, np.ndarray], part: Part) -> np.ndarray:
    """The values of a part, `[rows]`."""
    values = features[part.feature]
    return values.reshape(-1) if part.column is None else values[:, part.column]


def crossed(parts: list[Slicing]) -> Slicing:
    """One part for each combination of the parts of several features."""
    sizes = [part.values for part in parts]

    def part_of(features: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.ravel_multi_index([part.part(features) for part in parts], sizes)

    def text(code: int) -> str:
        places = np.unravel_index(code, sizes)
        return ", ".join(part.text(int(place)) for part, place in zip(parts, places, strict=True))

    return Slicing(", ".join(part.name for part in parts), math.prod(sizes), part_of, text)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Some of the rows: the feature, what its values there are called, and bool `[rows]`."""

    feature: str
    value: str
    rows: np.ndarray


def slices_of(schema: Schema, name: str, values: np.ndarray) -> Iterator[Slice]:
    """The parts of rows with these raw values of a feature, float32 or `bytes`, `[rows]` or `[rows, width]`."""
    feature = next(f for f in schema.inputs if f.name == name)
    whole = Part(name, None, name)
    if isinstance(feature, OneHot):
        values = values.argmax(axis=1)
        slicings = [of_ids(whole, len(feature.refs), lambda column: str(feature.refs[column]))]
    elif values.dtype == object:
        slicings = [of_words(whole, values)]
    elif values.ndim == 1:
        slicings = [of_numbers(whole, values)]
    else:
        columns = [Part(name, column, f"{name}[{ref}]") for column, ref in enumerate(feature.refs)]
        slicings = [of_numbers(part, values[:, part.column]) for part in columns]
    for slicing in slicings:
        codes = slicing.part({name: values})
        yield from (Slice(slicing.name, slicing.text(code), codes == code) for code in np.unique(codes).tolist())


class Slices:
    """Sums by part, added batch by batch. Each part of `slicings` has a row of sums."""

    def __init__(self, slicings: list[Slicing], predictions: Predictions, *, keep_parts: bool = False) -> None:
        """Args:

        slicings: the divisions.
        predictions: of the rows, in the order in which their features come.
        keep_parts: hold each row's part, for the AUC of each part, too.
        """
        self._slicings = slicings
        self._predictions = predictions
        self._classes = bool(predictions.target.names)
        self._sums = [np.zeros((5, slicing.values)) for slicing in slicings]
        self._parts: list[list[np.ndarray]] | None = [[] for _ in slicings] if keep_parts else None
        self._added = 0

    def add(self, features: Mapping[str, np.ndarray]) -> None:
        """Adds the next rows."""
        rows = len(next(iter(features.values())))
        at = slice(self._added, self._added + rows)
        self._added = at.stop
        loss, weight = self._predictions.loss[at], self._predictions.weight[at]
        usable = np.isfinite(loss)
        loss, weight = np.where(usable, loss, 0.0), np.where(usable, weight, 0.0)
        good = self._predictions.label[at] == self._predictions.predicted[at] if self._classes else np.zeros(rows)
        sums = (usable.astype(np.float64), weight, weight * loss, weight * loss**2, weight * good)
        for i, (slicing, totals) in enumerate(zip(self._slicings, self._sums, strict=True)):
            part = slicing.part(features).astype(np.int64)
            for place, values in enumerate(sums):
                totals[place] += np.bincount(part, values, slicing.values)
            if self._parts is not None:
                self._parts[i].append(part.astype(np.int32))

    def tables(self) -> list[dict[str, Any]]:
        """By feature: its slices, ranges in their order, others by their number of rows."""
        tables = []
        for i, (slicing, sums) in enumerate(zip(self._slicings, self._sums, strict=True)):
            order = np.arange(slicing.values) if slicing.in_order else np.argsort(-sums[0], kind="stable")
            order = order[sums[0][order] > 0]
            parts = None if self._parts is None else np.concatenate([[], *self._parts[i]]).astype(np.int64)
            rows = [self._row(slicing, sums, int(p), parts) for p in order[:LISTED]]
            tables.append({"feature": slicing.name, "slices": rows, "left_out": max(0, len(order) - LISTED)})
        return tables

    def worst(self) -> list[dict[str, Any]]:
        """The slices with the highest loss, of those that are large, and surely worse than all rows together."""
        candidates = []
        for slicing, sums in zip(self._slicings, self._sums, strict=True):
            rows, weight, loss, squared, _ = sums
            least = max(LEAST_ROWS, LEAST_SHARE * rows.sum())
            overall = loss.sum() / max(weight.sum(), 1e-300)
            for part in np.flatnonzero((rows >= least) & (rows < rows.sum()) & (weight > 0)):
                mean = loss[part] / weight[part]
                error = math.sqrt(max(squared[part] / weight[part] - mean**2, 0.0) / rows[part])
                if mean - overall > CERTAIN * error:
                    entry = self._row(slicing, sums, int(part), None)
                    candidates.append((mean, {"feature": slicing.name, **entry}))
        candidates.sort(key=lambda pair: -pair[0])
        taken: collections.Counter[str] = collections.Counter()
        worst: list[dict[str, Any]] = []
        for _, entry in candidates:
            taken[entry["feature"]] += 1
            if taken[entry["feature"]] <= OF_ONE_FEATURE and len(worst) < WORST:
                worst.append(entry)
        return worst

    def _row(self, slicing: Slicing, sums: np.ndarray, part: int, parts: np.ndarray | None) -> dict[str, Any]:
        rows, weight, loss, _, good = (float(x) for x in sums[:, part])
        entry: dict[str, Any] = {"value": slicing.text(part), "rows": int(rows)}
        mean = loss / weight if weight else None
        if not self._classes:
            return {**entry, "root_mean_squared_error": None if mean is None else math.sqrt(mean)}
        entry |= {"loss": mean, "accuracy": good / weight if weight else None}
        if parts is not None:
            entry["auc"] = self._area(np.flatnonzero(parts == part))
        return entry

    def _area(self, rows: np.ndarray) -> float | None:
        """The AUC of some rows of a label of two classes; None where they are of one class."""
        area = measure("auc", self._predictions.take(rows[self._predictions.usable[rows]]))
        return None if math.isnan(area) else area
