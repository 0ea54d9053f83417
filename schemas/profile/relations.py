"""Describes how the label depends on the values of each feature, for the charts of a report.

The rows are the sample of the train split that is also searched for leakage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.profile.duplicates import value_hashes
from schemas.profile.label_leaks import SampledRows, bins

FEATURES = 100  # whose values are described
BINS, VALUES = 10, 8  # of a feature
CLASSES = 5  # of a label, the most frequent ones
CELLS = 1 << 17  # rows times columns that are looked at


def relations(
    sampled: SampledRows,
    numbers: Sequence[str],
    strings: Sequence[str],
    *,
    label: str,
    first: Sequence[str],
    classes: Sequence[str],
) -> dict[str, Any]:
    """Describes how the label depends on the values of each feature. docs/leakage.md describes the keys of the result.

    Args:
      sampled: the sample's rows.
      numbers: the names of the features of numbers.
      strings: the names of the features of strings.
      label: the name of the label.
      first: the features to prefer if there are more than FEATURES features.
      classes: the names of the label's classes; empty if the label is a number.
    """
    # Reads every `step`-th row, so that rows times columns is about CELLS at most. `-(-a // b)` rounds a / b up.
    step = -(-len(sampled.labels) * (len(numbers) + len(strings)) // CELLS) or 1  # rows are in random order
    labels, shown = sampled.labels[::step], []
    targets = labels[:, None].astype(float)
    if classes:
        sizes = np.bincount(labels, minlength=len(classes))
        order = np.lexsort((np.arange(len(classes)), sizes if len(classes) == 2 else -sizes))  # of two, the rarer
        largest = order[: 1 if len(classes) == 2 else CLASSES]
        targets, shown = (targets == largest).astype(float), [classes[place] for place in largest]
    described = set(list(dict.fromkeys([*first, *numbers, *strings]))[:FEATURES])
    features = []
    for place, name in enumerate(numbers):
        if name in described:
            features.append({"name": name, "bins": _by_number(sampled.numbers[::step, place], targets)})
    for place, name in enumerate(strings):
        if name in described:
            keys, codes = np.unique(sampled.codes[::step, place], return_inverse=True)
            parts = sorted(_parts(codes, targets), key=lambda part: -part[1]["share"])[:VALUES]
            features.append({"name": name, "values": [{"code": int(keys[code])} | part for code, part in parts]})
    overall = _rounded(targets.mean(axis=0))
    return {"rows": len(labels), "label": label, "classes": shown, "overall": overall, "features": features}


def _by_number(values: np.ndarray, targets: np.ndarray) -> list[dict[str, Any]]:
    """Describes the bins of a feature of numbers, in rising order. The bin of missing values comes last."""
    codes, ranked = _binned(values), []
    for code, part in _parts(codes, targets):
        low, high = (float(end) for end in (values[codes == code].min(), values[codes == code].max()))
        if math.isnan(low):
            ranked.append((math.inf, {"missing": True} | part))
        elif math.isfinite(low) and math.isfinite(high):
            ranked.append((low, {"low": low, "high": high} | part))
    return [part for _, part in sorted(ranked, key=lambda pair: pair[0])]


def _parts(codes: np.ndarray, targets: np.ndarray) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields each code with its share of the rows and the mean of each target over the code's rows."""
    counts = np.bincount(codes)
    sums = np.stack([np.bincount(codes, target) for target in targets.T], axis=1)
    for code in np.flatnonzero(counts).tolist():
        share = round(float(counts[code] / len(codes)), 6)
        yield code, {"share": share, "label": _rounded(sums[code] / counts[code])}


def _binned(values: np.ndarray) -> np.ndarray:
    """Returns the bin of each number. A number so frequent that it leaves too few bins gets a bin of its own."""
    codes = bins(values, BINS)
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if codes.max() + 1 < BINS / 2 and len(distinct) > codes.max() + 1:
        common = values == distinct[counts.argmax()]
        codes = bins(np.where(common, np.nan, values), BINS // 2)
        codes = np.where(common, codes.max() + 1, codes)
    return codes


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def named(relations: Mapping[str, Any], values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the relations with strings in place of the strings' hashes.

    A hash of a string that `values` lacks is left out.

    Args:
      relations: the result of the function `relations`.
      values: the known strings of each feature, by the feature's name.
    """
    features = []
    for feature in relations["features"]:
        if "values" in feature:
            strings = list(values.get(feature["name"], ()))
            hashes = value_hashes(pa.array([text.encode() for text in strings], pa.binary())).tolist()
            texts = dict(zip(hashes, strings, strict=True)) | {0: None}
            parts = [
                {"value": texts[part["code"]], "share": part["share"], "label": part["label"]}
                for part in feature["values"]
                if part["code"] in texts
            ]
            features.append({"name": feature["name"], "values": parts})
        else:
            features.append(feature)
    return {**relations, "features": features}
