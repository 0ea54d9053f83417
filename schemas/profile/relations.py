"""How columns go together in the sample of the train split that leakage is looked for in: the label by the values of
each feature, and correlations. What a report shows of it, as JSON values.
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
COLUMNS, PAIRS = 256, 12  # numbers that are correlated, and pairs of them that are shown
CELLS = 1 << 17  # rows times columns that are looked at
LEAST = 30  # rows on which a correlation stands


def relations(
    sampled: SampledRows,
    numbers: Sequence[str],
    strings: Sequence[str],
    *,
    label: str,
    first: Sequence[str],
    classes: Sequence[str],
) -> dict[str, Any]:
    """What is found; docs/leakage.md describes the keys.

    Args:
      sampled: the rows.
      numbers: the names of the features of numbers.
      strings: those of strings.
      label: its name.
      first: features that are described before others.
      classes: the names of the classes; none: the label is a number.
    """
    step = -(-len(sampled.labels) * (len(numbers) + len(strings)) // CELLS) or 1  # rows are in random order
    sampled = SampledRows(
        sampled.labels[::step], sampled.numbers[::step], sampled.codes[::step], sampled.fitting[::step]
    )
    rows, targets, shown = len(sampled.labels), sampled.labels[:, None], []
    if classes:
        sizes = np.bincount(sampled.labels, minlength=len(classes))
        order = np.lexsort((np.arange(len(classes)), sizes if len(classes) == 2 else -sizes))  # of two, the rarer
        largest = order[: 1 if len(classes) == 2 else CLASSES]
        targets, shown = (targets == largest).astype(float), [classes[place] for place in largest]
    described = set(list(dict.fromkeys([*first, *numbers, *strings]))[:FEATURES])
    return {
        "rows": rows,
        "label": label,
        "classes": shown,
        "overall": _rounded(targets.mean(axis=0)),
        "features": list(_by_value(sampled, numbers, strings, described, targets)),
        "correlations": _correlations(
            sampled.numbers,
            numbers,
            targets if targets.shape[1] == 1 else targets[:, :0],
            f"{label} = {shown[0]}" if shown else label,
        ),
    }


def _by_value(
    sampled: SampledRows,
    numbers: Sequence[str],
    strings: Sequence[str],
    described: set[str],
    targets: np.ndarray,
) -> Iterator[dict[str, Any]]:
    """Of each feature, its bins or values with their share of the rows and the mean of each target."""
    rows = len(targets)
    sums_of = [np.ones(rows) / rows, *(targets.T / rows)]
    for place, name in enumerate(numbers):
        if name not in described:
            continue
        values = sampled.numbers[:, place]
        codes = _binned(values)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        ends = (end.reduceat(values[order], starts).tolist() for end in (np.fmin, np.fmax))  # NaN if all are
        sums = np.stack([np.add.reduceat(values_of[order], starts) for values_of in sums_of])
        parts = [
            ({"missing": True} if math.isnan(low) else {"low": low, "high": high}) | means
            for low, high, means in zip(*ends, _means(sums), strict=True)
            if not math.isinf(low) and not math.isinf(high)
        ]
        yield {"name": name, "bins": sorted(parts, key=lambda part: part.get("low", math.inf))}
    for place, name in enumerate(strings):
        if name not in described:
            continue
        keys, codes = np.unique(sampled.codes[:, place], return_inverse=True)
        sums = np.stack([np.bincount(codes, values_of) for values_of in sums_of])
        often = np.argsort(-sums[0], kind="stable")[:VALUES]
        parts_of_values = zip(keys[often].tolist(), _means(sums[:, often]), strict=True)
        yield {"name": name, "values": [{"code": code} | means for code, means in parts_of_values]}


def _means(sums: np.ndarray) -> Iterator[dict[str, Any]]:
    """Shares, and means of targets, from their sums: `[1 + targets, parts]`."""
    for share, *of_targets in sums.T:
        yield {"share": round(float(share), 6), "label": _rounded(np.array(of_targets) / share)}


def _binned(values: np.ndarray) -> np.ndarray:
    """The bin of each number. A number that most rows have is a bin of its own: else others would share it."""
    codes = bins(values, BINS)
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if codes.max() + 1 < BINS / 2 and len(distinct) > codes.max() + 1:
        common = values == distinct[counts.argmax()]
        codes = bins(np.where(common, np.nan, values), BINS // 2)
        codes = np.where(common, codes.max() + 1, codes)
    return codes


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _correlations(values: np.ndarray, names: Sequence[str], target: np.ndarray, label: str) -> dict[str, Any]:
    """Pearson's, of the pairs that have most of it; missing values count as the mean.

    Args:
      values: `[rows, columns]`.
      names: of the columns.
      target: `[rows, 1]`; `[rows, 0]`: the label is left out, since it has many classes.
      label: what the target is called.
    """
    if len(values) < LEAST:
        return {}
    table = np.concatenate([values[:, :COLUMNS].astype(np.float64), target], axis=1)
    names = [*names[:COLUMNS], label]
    present = np.isfinite(table)
    counts = np.maximum(present.sum(0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        centred = np.where(present, table - np.where(present, table, 0).sum(0) / counts, 0)
        centred /= np.maximum(np.abs(centred).max(0), 1e-300)
        spread = np.sqrt((centred * centred).sum(0))
        matrix = centred.T @ centred / np.maximum(np.outer(spread, spread), 1e-300)
    alive = np.flatnonzero((present.sum(0) >= LEAST) & (spread > 0) & np.isfinite(np.diag(matrix)))
    left, right = (alive[side] for side in np.triu_indices(len(alive), 1))
    strongest = np.argsort(-np.abs(matrix[left, right]), kind="stable")[:PAIRS]
    pairs = [(left[i], right[i], float(matrix[left[i], right[i]].clip(-1, 1))) for i in strongest]
    return {"columns": len(alive), "pairs": [{"names": [names[i], names[j]], "r": round(r, 4)} for i, j, r in pairs]}


def named(relations: Mapping[str, Any], values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The same, with the strings in place of their hashes, as far as they are among `values`, by feature."""
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
