"""Parts of the rows: those with one value of a feature, or with values in a range; and how a model does on them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas.display import readable
from schemas.spec.features import Feature, Numeric, OneHot
from schemas.spec.forms import Dense, Ids, Input
from schemas.spec.table import Schema
from trainer.evaluation.metrics import measure
from trainer.evaluation.predictions import Predictions, PredictionTarget

LONGEST = 50  # values of a vector that have slices of their own: not the pixels of an image
MOST_WORDS = 50  # of a feature that have slices of their own: the most frequent ones
RANGES = 5  # that a number is cut into, by its quantiles
FEW = 12  # distinct numbers: up to here each is a slice of its own
LISTED = 50  # slices of a feature, those with the most rows
WORST, OF_ONE_FEATURE = 10, 3
LEAST_ROWS, LEAST_SHARE = 30, 0.002  # of a slice among the worst
CERTAIN = 3.0  # standard errors between the loss of such a slice and that of all rows


@dataclasses.dataclass(frozen=True)
class Part:
    """One value of a feature.

    Attributes:
      feature: the stored feature.
      column: the value's place in the stored vector; None: the feature holds a single value.
      name: what people call it, such as `terrain[0]`.
    """

    feature: str
    column: int | None = None
    name: str = ""

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the part's values among those of all features, `[rows]`."""
        values = features[self.feature]
        return values.reshape(-1) if self.column is None else values[:, self.column]


def parts_of(entry: Input, feature: Feature | None) -> Iterator[Part]:
    """Yields the single values of a stored feature; none of a bag, of a long vector or of tokens.

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
    """Returns the names of the values that can be sliced by, before the schema's vocabularies are known."""
    entries = ((entry, feature) for feature in schema.inputs for entry in feature.inputs(1))
    return [part.name for entry, feature in entries if not hashed(entry, feature) for part in parts_of(entry, feature)]


def hashed(entry: Input, feature: Feature | None) -> bool:
    """Returns whether ids are buckets of a hash, which say nothing to a reader."""
    return (isinstance(entry, Ids) and entry.crossed) or getattr(feature, "hash_buckets", None) is not None


@dataclasses.dataclass(frozen=True)
class Slicing:
    """How a feature divides rows into slices.

    Attributes:
      name: the feature's.
      count: how many slices there are.
      codes: feature values `[rows]` -> the slice of each row, int64 `[rows]`.
      text: slice -> what it is called.
      in_order: whether the slices have an order of their own, in which they are listed.
    """

    name: str
    count: int
    codes: Callable[[Mapping[str, np.ndarray]], np.ndarray]
    text: Callable[[int], str]
    in_order: bool = False


def by_id(part: Part, names: Sequence[str]) -> Slicing:
    """Returns one slice for each id, by the names of the ids."""
    last = len(names) - 1
    return Slicing(part.name, len(names), lambda features: np.clip(part.values(features), 0, last), names.__getitem__)


def by_number(part: Part, sample: np.ndarray, text: Callable[[float], str] = lambda x: readable(x, 4)) -> Slicing:
    """Returns one slice for each of a few numbers, or for each of five ranges with about as many rows of the sample.

    The last slice holds missing numbers.
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

    def codes(features: Mapping[str, np.ndarray]) -> np.ndarray:
        values = part.values(features)
        return np.where(np.isnan(values), len(names) - 1, np.searchsorted(ends, values, "right"))

    return Slicing(part.name, len(names), codes, names.__getitem__, in_order=True)


def by_word(part: Part, sample: np.ndarray) -> Slicing:
    """Returns one slice for each of the most frequent words of the sample, `bytes` objects, and one for the rest."""
    counts = collections.Counter(word.strip() for word in sample)
    places = {word: place for place, (word, _) in enumerate(counts.most_common(MOST_WORDS))}
    names = [*(word.decode("utf-8", "replace") or "(missing)" for word in places), "(all other values)"]

    def codes(features: Mapping[str, np.ndarray]) -> np.ndarray:
        values = part.values(features)
        return np.fromiter((places.get(word.strip(), len(places)) for word in values), np.int64, len(values))

    return Slicing(part.name, len(names), codes, names.__getitem__)


def crossed(slicings: Sequence[Slicing]) -> Slicing:
    """Returns one slice for each combination of the slices of several features; of one feature its own."""
    if len(slicings) == 1:
        return slicings[0]
    sizes = [slicing.count for slicing in slicings]

    def codes(features: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.ravel_multi_index([slicing.codes(features) for slicing in slicings], sizes)

    def text(code: int) -> str:
        places = np.unravel_index(code, sizes)
        return ", ".join(slicing.text(int(place)) for slicing, place in zip(slicings, places, strict=True))

    return Slicing(", ".join(slicing.name for slicing in slicings), math.prod(sizes), codes, text)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Some of the rows: the feature, what its values there are called, and bool `[rows]`."""

    feature: str
    value: str
    rows: np.ndarray


def raw_slices(schema: Schema, name: str, values: np.ndarray) -> Iterator[Slice]:
    """Yields the slices of rows by the raw values of a feature, float32 or `bytes`, `[rows]` or `[rows, width]`."""
    feature = next(f for f in schema.inputs if f.name == name)
    whole = Part(name, None, name)
    if isinstance(feature, OneHot):
        values = values.argmax(axis=1)
        slicings = [by_id(whole, [str(ref) for ref in feature.refs])]
    elif values.dtype == object:
        slicings = [by_word(whole, values)]
    elif values.ndim == 1:
        slicings = [by_number(whole, values)]
    else:
        columns = [Part(name, column, f"{name}[{ref}]") for column, ref in enumerate(feature.refs)]
        slicings = [by_number(part, values[:, part.column]) for part in columns]
    for slicing in slicings:
        codes = slicing.codes({name: values})
        yield from (Slice(slicing.name, slicing.text(code), codes == code) for code in np.unique(codes).tolist())


@dataclasses.dataclass(frozen=True)
class SlicedRows:
    """The rows of an evaluation, divided by one feature.

    Attributes:
      slicing: the division.
      sums: by slice the number of rows, their weight, their weighted loss and its square, and the weight of the rows
        that are predicted correctly: float64 `[5, slices]`.
      codes: the slice of each row, int32 `[rows]`; empty: not kept.
    """

    slicing: Slicing
    sums: np.ndarray
    codes: np.ndarray


def slice_rows(
    slicings: Sequence[Slicing],
    predictions: Predictions,
    batches: Iterable[Mapping[str, np.ndarray]],
    with_codes: Sequence[Slicing] = (),
) -> list[SlicedRows]:
    """Divides the rows of an evaluation by each of several features.

    Args:
      slicings: the divisions.
      predictions: of the rows.
      batches: the stored features, in the order of the rows.
      with_codes: the divisions whose codes are kept, for the AUC of each slice.
    """
    sums = [np.zeros((5, slicing.count)) for slicing in slicings]
    codes: list[list[np.ndarray]] = [[np.zeros(0, np.int32)] for _ in slicings]
    first = 0
    for features in batches:
        end = first + len(next(iter(features.values())))
        values = _summed_values(predictions.take(np.arange(first, end)))
        first = end
        for i, slicing in enumerate(slicings):
            places = slicing.codes(features).astype(np.int64)
            sums[i] += [np.bincount(places, column, slicing.count) for column in values]
            if slicing in with_codes:
                codes[i].append(places.astype(np.int32))
    return [SlicedRows(*columns) for columns in zip(slicings, sums, map(np.concatenate, codes), strict=True)]


def _summed_values(batch: Predictions) -> tuple[np.ndarray, ...]:
    usable = batch.usable
    loss, weight = np.where(usable, batch.loss, 0.0), np.where(usable, batch.weight, 0.0)
    return usable.astype(np.float64), weight, weight * loss, weight * loss**2, weight * (batch.label == batch.predicted)


def slice_table(sliced: SlicedRows, predictions: Predictions) -> dict[str, Any]:
    """Returns a feature's slices as JSON holds them: ranges in their order, others by their number of rows."""
    rows = sliced.sums[0]
    order = np.arange(len(rows)) if sliced.slicing.in_order else np.argsort(-rows, kind="stable")
    order = order[rows[order] > 0]
    entries = []
    for place in order[:LISTED].tolist():
        entries.append(_entry(sliced, place, predictions.target))
        if len(sliced.codes) and predictions.target.binary:
            area = measure("auc", predictions.take((sliced.codes == place) & predictions.usable))
            entries[-1]["auc"] = None if math.isnan(area) else area
    return {"feature": sliced.slicing.name, "slices": entries, "left_out": max(0, len(order) - LISTED)}


def worst_slices(all_sliced: Iterable[SlicedRows], target: PredictionTarget) -> list[dict[str, Any]]:
    """Returns the slices with the highest loss, of those that are large, and surely worse than all rows together."""
    candidates = []
    for sliced in all_sliced:
        rows, weight, loss, squared, _ = sliced.sums
        least = max(LEAST_ROWS, LEAST_SHARE * rows.sum())
        overall = loss.sum() / max(weight.sum(), 1e-300)
        places = np.flatnonzero((rows >= least) & (rows < rows.sum()) & (weight > 0))
        mean = loss[places] / weight[places]
        error = np.sqrt(np.maximum(squared[places] / weight[places] - mean**2, 0.0) / rows[places])
        bad = np.flatnonzero(mean - overall > CERTAIN * error)
        order = bad[np.argsort(-mean[bad], kind="stable")][:OF_ONE_FEATURE]
        candidates += [(float(mean[i]), sliced, int(places[i])) for i in order.tolist()]
    candidates.sort(key=lambda candidate: -candidate[0])
    return [{"feature": s.slicing.name, **_entry(s, place, target)} for _, s, place in candidates[:WORST]]


def _entry(sliced: SlicedRows, place: int, target: PredictionTarget) -> dict[str, Any]:
    """A slice: its value, rows and metrics."""
    rows, weight, loss, _, correct = sliced.sums[:, place].tolist()
    entry: dict[str, Any] = {"value": sliced.slicing.text(place), "rows": int(rows)}
    mean = loss / weight if weight else None
    if not target.names:
        return {**entry, "root_mean_squared_error": None if mean is None else math.sqrt(mean)}
    return {**entry, "loss": mean, "accuracy": correct / weight if weight else None}
