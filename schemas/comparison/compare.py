"""Compares two samples, feature by feature, their values as the schema means them.

The distance of a feature is one of cells: values, or ranges of numbers between common edges.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.comparison.findings import Comparison, FeatureDrift, Range, Unseen
from schemas.display import readable
from schemas.profile.columns import Numbers, Strings
from schemas.profile.distributions import Distributions, below
from schemas.profile.statistics import ColumnSample, Sample
from schemas.spec.features import Bool
from schemas.spec.forms import Limits
from schemas.spec.loader import AnySchema
from schemas.spec.table import HashSplit, Schema

BINS = 10  # of numbers, about, as TensorFlow Data Validation has them
FINE = 64  # quantiles of either side, among which the edges are chosen
_EVERY = np.arange(1, FINE) / FINE  # the ranks of a side of which nothing is left out
LEAST = 5  # values of a cell beside a number that has a range of its own
DEVIATIONS = 8  # of an estimated rank, in the share of such a cell
_NONE = np.float32(np.inf)  # stands for no number at the end of a row


@dataclasses.dataclass(frozen=True)
class Cells:
    """The shares of the values of two samples by cell; a cell that is empty on both sides is left out.

    Attributes:
      labels: what each cell holds, for people.
      shares: of either side, float64 `[cells]`, each with a sum of 1.
      counts: the values of either side.
      named: how many of the cells, from the first on, are a value or a range. The one behind them, if there is one,
        holds all values that are not known.
    """

    labels: tuple[str, ...]
    shares: tuple[np.ndarray, np.ndarray]
    counts: tuple[int, int]
    named: int

    @property
    def pooled(self) -> np.ndarray:
        """The share of each cell among all values of both sides."""
        first, second = (share * count for share, count in zip(self.shares, self.counts, strict=True))
        total: np.ndarray = (first + second) / sum(self.counts)
        return total


class NumberPairs:
    """Columns of numbers of two samples, each with values on both sides, compared all at once.

    Arrays have a row for each column; rows of numbers end with `_NONE` where there are fewer.
    """

    def __init__(self, first: Distributions, second: Distributions) -> None:
        self._sides = first, second
        self.deviations = np.stack([first.deviations, second.deviations])

    def edges(self) -> np.ndarray:
        """The greatest numbers of all ranges but the last: float32 `[columns, edges]`, some twice.

        They are deciles of the mixture of both sides in equal parts, among the quantiles of either side. A number that
        is several of the deciles gets a range of its own, and the other numbers are cut anew: else a 0 that nearly all
        rows have would leave all others in one range, which holds as many however they change.
        """
        every = np.arange(len(self._sides[0].counts))
        cuts = self._cuts(every, np.empty((len(every), 0), np.float32))
        repeated = _repeated(cuts)
        again = np.flatnonzero(repeated[:, 0] < _NONE)
        alone = np.full((len(every), 2 * repeated.shape[1]), _NONE)
        if len(again):
            some = repeated[again]
            cuts[again] = self._cuts(again, some)
            alone[again] = np.concatenate([some, _repeated(cuts[again])], axis=1)
        return np.sort(np.concatenate([cuts, alone, _below(alone)], axis=1), axis=1)

    def _cuts(self, of: np.ndarray, alone: np.ndarray) -> np.ndarray:
        """Quantiles, some of them equal, of what both sides hold beside the numbers `alone`: rising.

        They are deciles, or fewer where a cell would have too few values for its share to be known.
        """
        sides = self._sides
        ends = [limits for side in sides for limits in (side.low[of, None], side.high[of, None])]
        if alone.shape[1]:
            spans = [(side.up_to(_below(alone), of), side.up_to(alone, of)) for side in sides]
            found = [side.at(_ranks_beside(*span), of) for side, span in zip(sides, spans, strict=True)]
            shares = np.mean([upto - under for under, upto in spans], axis=0)
        else:
            found = [side.at(_EVERY, of) for side in sides]
            shares = np.zeros(alone.shape)
        points = np.sort(np.concatenate([*found, *ends], axis=1).astype(np.float32), axis=1)
        mixture = (sides[0].up_to(points, of) + sides[1].up_to(points, of)) / 2
        for place in range(alone.shape[1]):
            mixture -= shares[:, place, None] * (alone[:, place, None] <= points)
        rest = 1 - shares.sum(1)
        cells = np.full(len(of), BINS)
        if alone.shape[1]:
            fewest = np.minimum(sides[0].counts[of], sides[1].counts[of])
            least = np.maximum(LEAST / fewest, DEVIATIONS * self.deviations[:, of].max(0))
            cells = (rest / least).astype(np.int64).clip(1, BINS)
        parts = np.arange(1, BINS)
        wanted = (parts / cells[:, None]) * rest[:, None] - 1e-9
        places = (mixture[:, :, None] < wanted[:, None, :]).sum(1).clip(max=points.shape[1] - 1)
        cuts = np.take_along_axis(points, places, axis=1)
        return np.where(parts < cells[:, None], cuts, _NONE)

    def distances(self, *, tests: int) -> Iterator[dict[str, Any]]:
        """Of each column, what `FeatureDrift` says of its values. `tests`: how many distances are compared in all."""
        bounds, (first, second) = self.edges(), self._sides
        p, q = (np.diff(side.up_to(bounds), prepend=0.0, append=1.0).clip(0) for side in self._sides)
        variances = 2 * np.square(self.deviations).sum(0)  # a share is the difference of two ranks
        noises = divergence_noise((p + q) / 2, (first.counts, second.counts), tests=tests, rank_variance=variances)
        beyond = np.stack([below(first.low.astype(np.float32)), first.high.astype(np.float32)], axis=1)
        outside = (second.up_to(beyond) * [1, -1] + [0, 1]) * second.counts[:, None]
        held = (p > 0) | (q > 0)
        cells = list(zip(_ranges(bounds, *np.nonzero(held)), p[held].tolist(), q[held].tolist(), strict=True))
        stops = np.cumsum(held.sum(1)).tolist()
        found = zip(l_infinity(p, q).tolist(), jensen_shannon(p, q).tolist(), noises.tolist(), strict=True)
        ends = zip(*(limits.tolist() for side in self._sides for limits in (side.low, side.high)), strict=True)
        for (distance, divergence, noise), (low, high, low2, high2), (under, over), start, stop in zip(
            found, ends, outside.tolist(), [0, *stops[:-1]], stops, strict=True
        ):
            far = [max(1, round(n)) for n, yes in ((under, low2 < low), (over, high2 > high)) if yes]  # the end itself
            yield {
                "l_infinity": distance,
                "jensen_shannon": divergence,
                "noise": noise,
                "cells": tuple(cells[start:stop]),
                "range": Range((low, high), (low2, high2), sum(far)),
            }


def _repeated(cuts: np.ndarray) -> np.ndarray:
    """The numbers that stand in a row of rising ones more than once, each once: float32 `[rows, half as many]`."""
    again = (cuts[:, 1:] == cuts[:, :-1]) & (cuts[:, 1:] < _NONE)
    again[:, 1:] &= cuts[:, 2:] != cuts[:, :-2]
    return np.sort(np.where(again, cuts[:, 1:], _NONE), axis=1)[:, : cuts.shape[1] // 2]


def _ranks_beside(under: np.ndarray, upto: np.ndarray) -> np.ndarray:
    """The ranks of a side's quantiles, each of equally many values, leaving out spans of ranks: rising float64."""
    zero, one = np.zeros((len(under), 1)), np.ones((len(under), 1))
    starts, ends = np.concatenate([zero, upto], axis=1), np.concatenate([under, one], axis=1)
    before = np.concatenate([zero, np.cumsum((ends - starts).clip(0), axis=1)], axis=1)
    ranks = _EVERY * before[:, -1:]
    places = (before[:, :, None] < ranks[:, None, :]).sum(1).clip(1) - 1
    found: np.ndarray = np.take_along_axis(starts, places, 1) + ranks - np.take_along_axis(before, places, 1)
    return found.clip(0, 1)


def _below(numbers: np.ndarray) -> np.ndarray:
    """The number before each; `_NONE` stays."""
    return np.where(numbers < _NONE, below(numbers), _NONE)


def _ranges(bounds: np.ndarray, columns: np.ndarray, places: np.ndarray) -> list[str]:
    """What ranges hold, in words: those at some places of some columns."""
    last = (bounds < _NONE).sum(1)[columns]
    lows, highs = bounds[columns, places - 1], bounds[columns, np.minimum(places, bounds.shape[1] - 1)]
    alone = below(highs) == lows
    return [
        f"above {readable(low)}"
        if place == end
        else f"up to {readable(high)}"
        if place == 0
        else readable(high)
        if one
        else f"above {readable(low)}, up to {readable(high)}"
        for place, end, low, high, one in zip(
            *(some.tolist() for some in (places, last, lows, highs, alone)), strict=True
        )
    ]


def of_strings(a: Strings, b: Strings) -> Cells:
    """Each value that is known on a side; what is not known is one more cell. Both sides have values."""
    counts = a.counts, b.counts
    values = list(dict.fromkeys([*counts[0], *counts[1]]))
    found = [np.array([side.get(value, 0) for value in values], np.float64) for side in counts]
    rest = [max(0.0, side.count - held.sum()) for side, held in zip((a, b), found, strict=True)]
    labels, named = [text(value) for value in values], len(values)
    if any(rest):
        labels.append("other values")
        found = [np.append(held, other) for held, other in zip(found, rest, strict=True)]
    return Cells(tuple(labels), (found[0] / a.count, found[1] / b.count), (a.count, b.count), named)


def text(value: bytes) -> str:
    """A value for people and for JSON."""
    return value.decode(errors="replace")


CONFIDENCE = 0.99  # that equal data stays within the noise, for all features of a comparison together


def l_infinity(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The greatest difference of the shares of one cell, from 0 to 1.

    This is the `infinity_norm` of TensorFlow Data Validation's drift and skew comparators: the L-infinity distance of
    normalized counts. https://www.tensorflow.org/tfx/data_validation/anomalies

    Args:
      p, q: the shares of the cells, float64 `[..., cells]`.
    """
    found: np.ndarray = np.abs(p - q).max(axis=-1, initial=0.0)
    return found


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The Jensen-Shannon divergence in bits, from 0 (equal) to 1 (nothing in common).

    J. Lin, "Divergence measures based on the Shannon entropy", IEEE Transactions on Information Theory 37(1), 1991,
    with equal weights: (KL(p || m) + KL(q || m)) / 2 for m = (p + q) / 2. It is the square of SciPy's
    `jensenshannon(p, q, base=2)`, and `jensen_shannon_divergence` of TensorFlow Data Validation.

    Args:
      p, q: the shares of the cells, float64 `[..., cells]`, each with a sum of 1.
    """
    middle = (p + q) / 2
    found: np.ndarray = ((_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2).clip(0, 1)
    return found


def _relative_entropy(p: np.ndarray, m: np.ndarray) -> np.ndarray:
    ratio = np.divide(p, m, out=np.ones_like(p), where=p > 0)
    found: np.ndarray = (p * np.log2(ratio)).sum(-1)
    return found


def share_noise(pooled: np.ndarray, counts: tuple[int, int], *, tests: int) -> float:
    """What the shares of a cell differ by at most if both sides are samples of the same data.

    Bernstein's inequality for the difference of two means of independent 0s and 1s, with the pooled share as its
    variance, for both directions and for all tests (union bound). S. Boucheron, G. Lugosi, P. Massart, "Concentration
    Inequalities", 2013, section 2.8.

    Args:
      pooled: the share of each cell among the values of both sides, float64 `[cells]`.
      counts: the number of values on either side, at least 1.
      tests: how many shares are compared, in all features together.

    Returns:
      The noise of the cell that has most of it, from 0 to 1.
    """
    bits = math.log(2 * tests / (1 - CONFIDENCE))
    variance = float((pooled * (1 - pooled)).max(initial=0.0)) * (1 / counts[0] + 1 / counts[1])
    linear = bits / min(counts) / 3
    return min(1.0, linear + math.sqrt(linear * linear + 2 * bits * variance)) if variance else 0.0


def divergence_noise(
    middle: np.ndarray, counts: tuple[np.ndarray, np.ndarray], *, tests: int, rank_variance: np.ndarray
) -> np.ndarray:
    """What the Jensen-Shannon divergence is at most if both sides are samples of the same data.

    To second order, the divergence in nats is sum((p - q)^2 / m) / 8, so that 8 times it, divided by 1/a + 1/b for
    counts of a and b, is distributed as chi-square with cells - 1 degrees of freedom (the same expansion makes the
    G-test); one more is taken, since the cells' edges follow the data. Its quantile is that of E. B. Wilson and M. M.
    Hilferty, "The distribution of chi-square", 1931.

    Args:
      middle: the share of each cell in the mixture of both sides, float64 `[columns, cells]`; 0 for no cell.
      counts: the number of values on either side, at least 1, int64 `[columns]`.
      tests: how many divergences are compared.
      rank_variance: of the difference of two shares, because ranks are estimated; 0 if they are exact.
    """
    free = np.maximum(1, (middle > 0).sum(-1))
    inverse = np.divide(1, middle, out=np.zeros_like(middle), where=middle > 0).sum(-1) / free
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / tests)
    spread = 2 / (9 * free)
    chi_square = free * (1 - spread + z * np.sqrt(spread)) ** 3
    scale = 1 / counts[0] + 1 / counts[1] + rank_variance * inverse
    return np.minimum(1.0, chi_square * scale / (8 * math.log(2)))


_WORDS = {b"1": b"true", b"0": b"false"}


def as_meant(sample: Sample, schema: AnySchema) -> Sample:
    """The sample with the spellings of bools joined. Its strings must be those of the schema's records."""
    bools = {item.name: item for item in schema.items if isinstance(item, Bool)} if isinstance(schema, Schema) else {}
    columns = dict(sample.columns)
    for name, item in bools.items():
        column = columns.get(name)
        if column is not None and isinstance(column.values, Strings):
            columns[name] = dataclasses.replace(column, values=_joined(column.values, item))
    return dataclasses.replace(sample, columns=columns)


def _joined(strings: Strings, item: Bool) -> Strings:
    counts: collections.Counter[bytes] = collections.Counter()
    found = strings.counts
    for (value, count), read in zip(found.items(), item.read_values(pa.array(found, pa.binary())), strict=True):
        counts[_WORDS.get(read, value) if isinstance(read, bytes) else value] += count
    lengths = [len(value) for value in counts]
    frequent = dataclasses.replace(
        strings.frequent, values=pa.array(counts, pa.binary()), counts=np.array(list(counts.values()), np.int64)
    )
    return dataclasses.replace(
        strings, frequent=frequent, shortest=min(lengths, default=-1), longest=max(lengths, default=-1)
    )


def of_groups(comparison: Comparison, schema: AnySchema) -> Comparison:
    """A comparison of two splits of a dataset; where these hold whole groups of rows, with a note, and none fails."""
    if not isinstance(schema, Schema) or not isinstance(schema.split, HashSplit) or schema.split.by == "row":
        return comparison
    groups = schema.split.by if isinstance(schema.split.by, str) else " and ".join(schema.split.by)
    note = (
        f"Each split holds whole groups of rows, those with the same {groups}. With few groups, splits differ more "
        "than chance explains for single rows, and this is no sign of drift"
    )
    limited = (
        feature
        if feature.fail is None
        else dataclasses.replace(feature, warn=feature.fail if feature.warn is None else feature.warn, fail=None)
        for feature in comparison.features
    )
    features = tuple(sorted(limited, key=lambda feature: feature.rank))
    return dataclasses.replace(comparison, features=features, note=note)


EXAMPLES = 5  # unseen values that are named
CELLS = 8  # values that are told of a feature of strings

Thresholds = Callable[[str], Limits | None]  # by the feature's name in the schema


def compare(
    first: Sample,
    second: Sample,
    thresholds: Thresholds = lambda feature: None,
    *,
    names: tuple[str, str] = ("first", "second"),
) -> Comparison:
    """Compares two samples of records.

    Keys are left out: a key names an example, so new ones are no drift.

    Args:
      first: what is compared with, such as the train split.
      second: what may have drifted.
      thresholds: of each feature; see `schemas.spec.table.Schema.drift_limits`.
      names: what the samples are called.

    Returns:
      The features of both, the most drifted first.
    """
    columns = {
        name: (first.columns.get(name), second.columns.get(name))
        for name in (*first.columns, *(name for name in second.columns if name not in first.columns))
    }
    columns = {name: both for name, both in columns.items() if all(side is None or side.role != "key" for side in both)}
    sides = [sample.numbers for sample in (first, second)]
    shared = [name for name in columns if all(name in places for places, _ in sides)]
    pairs = NumberPairs(*(numbers.taken([places[name] for name in shared]) for places, numbers in sides))
    distances = pairs.distances(tests=len(columns)) if shared else iter(())
    thresholds = functools.cache(thresholds)
    found = [_compared(a, b, thresholds, names, distances, tests=len(columns)) for a, b in columns.values()]
    return Comparison(
        first=names[0],
        second=names[1],
        rows=(first.rows, second.rows),
        features=tuple(sorted(found, key=lambda feature: feature.rank)),
        channels=tuple(_channels(first.channels, second.channels)),
    )


def _channels(
    first: Mapping[str, Mapping[str, Mapping[str, float]]], second: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> list[tuple[str, float, float]]:
    return [
        (f"{image}, {channel}", told["mean"], second[image][channel]["mean"])
        for image, channels in first.items()
        if image in second
        for channel, told in channels.items()
    ]


def _compared(
    a: ColumnSample | None,
    b: ColumnSample | None,
    thresholds: Thresholds,
    names: tuple[str, str],
    numbers: Iterator[dict[str, Any]],
    *,
    tests: int,
) -> FeatureDrift:
    """`numbers`: what is found of the columns of numbers that have values on both sides, in their order."""
    column = b or a
    assert column is not None  # noqa: S101 - one of them has it
    limits = thresholds(column.feature)
    numeric = isinstance(column.values, Numbers)

    def told(note: str = "", **found: Any) -> FeatureDrift:
        return FeatureDrift(
            column.name,
            column.feature,
            column.kind,
            column.role,
            "jensen_shannon" if numeric else "l_infinity",
            note=note,
            warn=None if limits is None else limits.warn,
            fail=None if limits is None else limits.fail,
            **found,
        )

    if a is None or b is None:
        return told(f"only in {names[0] if b is None else names[1]}")
    if isinstance(a.values, Numbers) != isinstance(b.values, Numbers):
        kinds = ["a number" if isinstance(side.values, Numbers) else "a string" for side in (a, b)]
        return told(f"{kinds[0]} in {names[0]}, {kinds[1]} in {names[1]}")
    if column.kind == "image" and bool(a.values.count) != bool(b.values.count):
        return told(f"not measured in {names[0] if b.values.count else names[1]}")
    found = _missing(a.values, b.values, tests=tests)
    if a.values.count and b.values.count:
        if isinstance(a.values, Strings) and isinstance(b.values, Strings):
            found |= _of_strings(a.values, b.values, column.kind, tests=tests)
        else:
            found |= next(numbers)
    return told(**found)


def _missing(a: Numbers | Strings, b: Numbers | Strings, *, tests: int) -> dict[str, Any]:
    rows = a.count + a.missing, b.count + b.missing
    if not all(rows):
        return {"note": "a side has no records"}
    if not a.missing and not b.missing:
        return {}
    noise = share_noise(np.array([(a.missing + b.missing) / sum(rows)]), rows, tests=tests)
    return {"missing": (a.missing / rows[0], b.missing / rows[1]), "missing_noise": noise}


def _of_strings(a: Strings, b: Strings, kind: str, *, tests: int) -> dict[str, Any]:
    cells = of_strings(a, b)
    uncertain = max(a.frequent.error / a.count, b.frequent.error / b.count)
    known = cells.pooled[: cells.named]
    noise = share_noise(known, cells.counts, tests=tests * max(1, cells.named))
    p, q = (share[: cells.named] for share in cells.shares)
    most = np.argsort(-np.abs(p - q), kind="stable")[:CELLS].tolist()
    return {
        "l_infinity": float(l_infinity(p, q)),
        "jensen_shannon": float(jensen_shannon(*cells.shares)),
        "noise": min(1.0, noise + uncertain),
        "cells": tuple((cells.labels[place], float(p[place]), float(q[place])) for place in most),
        "unseen": _unseen(a, b),
        # The values of a one-hot group are columns.
        "range": None if kind == "one_hot" else Range((a.shortest, a.longest), (b.shortest, b.longest), None),
    }


def _unseen(a: Strings, b: Strings) -> Unseen | None:
    known = a.counts
    new = sorted(
        ((value, count) for value, count in b.counts.items() if value not in known),
        key=lambda item: (-item[1], item[0]),
    )
    if not new:
        return None
    examples = tuple((text(value), count) for value, count in new[:EXAMPLES])
    rows = sum(count for _, count in new)
    return Unseen(examples, len(new), rows, at_most=a.frequent.error, at_least=bool(b.frequent.error))
