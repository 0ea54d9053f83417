"""How columns go together in the sample of the train split that leakage is looked for in: the label by the values of
each feature, correlations, and which values are missing together. What a report shows of it, as JSON values.
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
COLUMNS, SHOWN, PAIRS = 256, 14, 12  # numbers that are correlated, those that are shown, and pairs of them
PATTERNS, NAMES = 8, 6  # of missing values, and columns that are named of each
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
        "correlations": _correlations(sampled.numbers, numbers, targets, label, shown),
        "missing": _missing(sampled, numbers, strings),
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
        ends = (some.reduceat(values[order], starts).tolist() for some in (np.fmin, np.fmax))  # NaN if all are
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
        told = zip(keys[often].tolist(), _means(sums[:, often]), strict=True)
        yield {"name": name, "values": [{"code": code} | means for code, means in told]}


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


def _correlations(
    values: np.ndarray,
    names: Sequence[str],
    targets: np.ndarray,
    label: str,
    classes: Sequence[str],
) -> dict[str, Any]:
    """Pearson's, with the label last; missing values count as the mean. Of a label of many classes, features alone."""
    if len(values) < LEAST:
        return {}
    columns = [values[:, :COLUMNS].astype(np.float64)]
    names = list(names[:COLUMNS])
    if targets.shape[1] == 1:
        columns.append(targets)
        names.append(f"{label} = {classes[0]}" if classes else label)
    table = np.concatenate(columns, axis=1)
    present = np.isfinite(table)
    counts = np.maximum(present.sum(0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        centred = np.where(present, table - np.where(present, table, 0).sum(0) / counts, 0)
        centred /= np.maximum(np.abs(centred).max(0), 1e-300)
        spread = np.sqrt((centred * centred).sum(0))
        found = centred.T @ centred / np.maximum(np.outer(spread, spread), 1e-300)
    alive = np.flatnonzero((present.sum(0) >= LEAST) & (spread > 0) & np.isfinite(np.diag(found)))
    found, names = found[np.ix_(alive, alive)].clip(-1, 1), [names[i] for i in alive]
    if len(names) < 2:
        return {}
    off = np.abs(found) - np.eye(len(names))
    order = np.argsort(-off.max(0), kind="stable")
    last = len(names) - 1
    rest = [i for i in order.tolist() if i != last or targets.shape[1] > 1]
    some = sorted(rest[:SHOWN]) + ([] if targets.shape[1] > 1 else [last])
    left, right = np.triu_indices(len(names), 1)
    best = np.argsort(-off[left, right], kind="stable")[:PAIRS]
    pairs = [{"names": [names[left[i]], names[right[i]]], "r": round(float(found[left[i], right[i]]), 4)} for i in best]
    matrix = found[np.ix_(some, some)].round(4).tolist()
    return {"columns": len(names), "names": [names[i] for i in some], "matrix": matrix, "pairs": pairs}


def _missing(sampled: SampledRows, numbers: Sequence[str], strings: Sequence[str]) -> dict[str, Any]:
    """Which columns are missing together, the most frequent first."""
    missing = np.concatenate([np.isnan(sampled.numbers), sampled.codes == 0], axis=1)
    names = [*numbers, *strings]
    some = np.flatnonzero(missing.any(0))
    if not len(some):
        return {"columns": 0, "patterns": []}
    packed = np.packbits(missing[:, some], axis=1)
    _, firsts, of = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    sizes = np.bincount(of.reshape(-1)) / len(missing)
    patterns = []
    for place in np.argsort(-sizes, kind="stable")[:PATTERNS].tolist():
        which = [names[i] for i in some[missing[firsts[place], some]]]
        told = {"names": which[:NAMES], "more": max(0, len(which) - NAMES), "share": round(float(sizes[place]), 6)}
        patterns.append(told)
    return {"columns": len(some), "of": len(names), "patterns": patterns, "more": max(0, len(sizes) - PATTERNS)}


def named(found: Mapping[str, Any], values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The same, with the strings in place of their hashes, as far as they are among `values`, by feature."""
    features = []
    for feature in found["features"]:
        if "values" not in feature:
            features.append(feature)
        else:
            known = list(values.get(feature["name"], ()))
            hashes = value_hashes(pa.array([text.encode() for text in known], pa.binary())).tolist() if known else []
            texts = dict(zip(hashes, known, strict=True)) | {0: None}
            parts = [part for part in feature["values"] if part["code"] in texts]
            shown = [{"value": texts[part["code"]], "share": part["share"], "label": part["label"]} for part in parts]
            features.append({"name": feature["name"], "values": shown})
    return {**found, "features": features}
