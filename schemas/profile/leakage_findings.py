"""Judges hashes and samples of records: makes the values of `leakage.json`, and the warnings that follow from them.

A record's place is `{"file": KEY, "offset": BYTES}` here, until `with_paths` puts the file's path in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.dataset.leakage import FORMAT_VERSION, SHARED, Shared, looked_at, percent, predicted_classes
from schemas.dataset.manifest import DataWarning
from schemas.errors import counted
from schemas.profile.duplicates import HASH, SPLIT, RecordHashes
from schemas.profile.label_leaks import LEAST, LabelSignal, label_signals
from schemas.profile.leakage import SAMPLE, LeakageProfile, RowLeakage, WatchedRows
from schemas.profile.near_duplicates import EXAMPLES, find_near_duplicates
from schemas.profile.relations import relations
from schemas.spec.table import SPLITS

AUC = 0.99  # of a class against the rest, or of all of them in the mean
CORRELATION = 0.999
CLASSES = 1000  # of a label; one with more in the sample is not judged
SHOWN = 20  # features that are listed, those that tell most

Example = Callable[[int], dict[str, Any]]  # what JSON says of the record in a row of a table


def find(profile: LeakageProfile) -> dict[str, Any]:
    """Judges the profile of all records. docs/leakage.md describes the keys of the result."""
    findings: dict[str, Any] = {"format_version": FORMAT_VERSION}
    hashes = profile.hashes
    if "rows" in hashes:
        findings["rows"] = _rows(hashes["rows"])
    if "keys" in hashes:
        findings["keys"] = _keys(hashes["keys"])
    if "images" in hashes:
        findings["images"] = _images(hashes["images"])
    if isinstance(profile, RowLeakage):
        findings["label"], related = _label(hashes[SAMPLE], profile.watched)
        if related is not None:
            findings["relations"] = related
    return findings


def _looked_at(hashed: RecordHashes) -> dict[str, Any]:
    splits = [split for place, split in enumerate(SPLITS) if place in hashed.table.column(SPLIT).unique().to_pylist()]
    return {"records": hashed.records, "share": hashed.share, "splits": splits}


def _ordered(table: pa.Table, *by: str) -> pa.Table:
    """A table in an order that depends on its rows alone."""
    return table.sort_by([(name, "ascending") for name in (HASH, SPLIT, *by)])


def _occurring_twice(table: pa.Table) -> pa.Table:
    """The rows whose hash another row has, too: one sort, after which most tables are small."""
    hashes = np.asarray(table.column(HASH))
    order = np.argsort(hashes)
    again = np.zeros(len(hashes) + 1, bool)  # whether a hash equals the one before it, in order
    again[1:-1] = hashes[order[1:]] == hashes[order[:-1]]
    repeats = np.zeros(len(hashes), bool)
    repeats[order] = again[:-1] | again[1:]
    return _ordered(table if repeats.all() else table.filter(pa.array(repeats)), "file", "offset")


def _by_split(table: pa.Table) -> np.ndarray:
    """How many records are in each split: int64 `[len(SPLITS)]`."""
    return np.bincount(np.asarray(table.column(SPLIT)), minlength=len(SPLITS))


def _repeated(values: np.ndarray) -> int:
    """How many values occurred before: what would go if each stayed once."""
    in_order = np.sort(values)  # np.unique hashes, which takes longer
    return int((in_order[1:] == in_order[:-1]).sum())


def shared_values(values: np.ndarray, splits: np.ndarray, of: np.ndarray, example: Example) -> list[dict[str, Any]]:
    """Finds values that occur in two splits, for every two splits that share one, as JSON values.

    Args:
      values: uint64 `[n]`.
      splits: int8 `[n]`.
      of: the number of records of each split, with those whose value occurs once.
      example: describes the record of a value by its place.
    """
    findings = []
    for second in range(1, len(SPLITS)):
        theirs = np.flatnonzero(splits == second)
        for first in range(second):
            ours = np.flatnonzero(splits == first)
            both = theirs[np.isin(values[theirs], values[ours])]
            if not len(both):
                continue
            smallest = np.unique(values[both])[:EXAMPLES]  # which are the same ones in any order
            pairs = [[int(side[values[side] == value][0]) for side in (ours, both)] for value in smallest]
            findings.append(
                {
                    "splits": [SPLITS[first], SPLITS[second]],
                    "records": len(both),
                    "of": int(of[second]),
                    "examples": [list(map(example, pair)) for pair in pairs],
                }
            )
    return findings


def _place_in(table: pa.Table) -> Example:
    """Says where the record of a row of the table is."""
    return lambda row: {name: table.column(name)[row].as_py() for name in ("file", "offset")}


def _rows(hashed: RecordHashes) -> dict[str, Any]:
    table = _occurring_twice(hashed.table)
    hashes, splits, of = np.asarray(table.column(HASH)), np.asarray(table.column(SPLIT)), _by_split(hashed.table)
    train = SPLITS.index("train")  # how many of its rows are like one before them: how often that is to be expected
    return _looked_at(hashed) | {
        "repeated": {"split": "train", "records": _repeated(hashes[splits == train]), "of": int(of[train])},
        "equal": shared_values(hashes, splits, of, _place_in(table)),
    }


def _keys(hashed: RecordHashes) -> dict[str, Any]:
    table = _occurring_twice(hashed.table)
    hashes, splits = (np.asarray(table.column(name)) for name in (HASH, SPLIT))
    return _looked_at(hashed) | {
        "in_two_splits": shared_values(hashes, splits, _by_split(hashed.table), _place_in(table))
    }


def _images(hashed: RecordHashes) -> dict[str, Any]:
    """Equal images, images of one content with two labels, and those that are not equal and look nearly the same."""
    table = _ordered(hashed.table, "path")
    digests, splits = (np.asarray(table.column(name)) for name in (HASH, SPLIT))
    labels = np.asarray(table.column("label").combine_chunks().dictionary_encode().indices)

    def example(row: int) -> dict[str, Any]:
        path, label = (table.column(name)[row].as_py().decode("utf-8", "surrogateescape") for name in ("path", "label"))
        return {"path": path, "split": SPLITS[splits[row]], "label": label}

    count, pairs = with_two_labels(digests, labels)
    clear = np.flatnonzero(np.asarray(table.column("clear")))
    across, down = (np.asarray(table.column(name))[clear] for name in ("across", "down"))
    near = [
        {
            "splits": [SPLITS[first], SPLITS[second]],
            "records": records,
            "of": int((splits[clear] == second).sum()),
            "examples": [[example(int(clear[place])) for place in pair] for pair in places],
        }
        for first, second, records, places in find_near_duplicates(digests[clear], across, down, splits[clear])
    ]
    return _looked_at(hashed) | {
        "repeated": _repeated(digests),
        "equal": shared_values(digests, splits, _by_split(table), example),
        "two_labels": {"images": count, "examples": [list(map(example, pair)) for pair in pairs]},
        "compared_by_look": len(clear),
        "near": near,
    }


def with_two_labels(hashes: np.ndarray, labels: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """Finds the values that occur with more than one label.

    Args:
      hashes: uint64 `[n]`.
      labels: integers `[n]`.

    Returns:
      How many values these are, and examples: two places with one value and different labels.
    """
    order = np.lexsort((labels, hashes))
    value, label = hashes[order], labels[order]
    differ = np.flatnonzero((value[1:] == value[:-1]) & (label[1:] != label[:-1]))
    _, firsts = np.unique(value[differ], return_index=True)
    return len(firsts), [(int(order[i]), int(order[i + 1])) for i in differ[firsts[:EXAMPLES]]]


def _label(sample: RecordHashes, watched: WatchedRows) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What each feature alone tells about the label, and why none was judged; and how columns go together."""
    result: dict[str, Any] = {"name": watched.label.name, "rows": 0, "judged": False, "features": []}
    if (sampled := watched.sampled(sample)) is None:
        return result | {"because": "there is no row"}, None
    rows, classes = sampled
    result["rows"] = len(rows.labels)
    if len(classes) > CLASSES:
        return result | {"because": f"it has more than {CLASSES:,} classes"}, None
    if classes:
        sizes = np.bincount(rows.labels)
        result["rare_classes"] = int((np.minimum(sizes, sizes.sum() - sizes) < LEAST).sum())
    signals = sorted(
        label_signals(rows, watched.numbers, watched.strings), key=lambda s: (-s.overall, -s.value, s.name)
    )
    related = relations(
        rows,
        watched.numbers,
        watched.strings,
        label=watched.label.name,
        first=[signal.name for signal in signals],
        classes=classes,
    )
    if not signals:
        few = f"no class and its rest have {LEAST} rows each in the train split" if classes else "rows are too few"
        return result | {"because": "it has one class" if len(classes) == 1 else few}, related
    limit = AUC if classes else CORRELATION
    features = [_feature(signal, classes, limit, result["rows"]) for signal in signals]
    features.sort(key=lambda feature: not feature["leaks"])
    leaks = sum(feature["leaks"] for feature in features)
    return result | {"judged": True, "limit": limit, "leaks": leaks, "features": features[:SHOWN]}, related


def _feature(signal: LabelSignal, names: list[str], limit: float, rows: int) -> dict[str, Any]:
    feature = {"name": signal.name, signal.measure: round(signal.overall, 6), "leaks": signal.overall > limit}
    if signal.rows < rows:
        feature["rows"] = signal.rows
    if len(names) > 2:
        feature["best"] = {"class": names[signal.of], "auc": round(signal.value, 6)}
        tells = [(names[of], auc, share) for of, auc, share in signal.classes if auc > limit]
        if tells:
            feature["leaks"] = True
            feature["tells"] = [{"class": c, "auc": round(auc, 6), "share": round(share, 6)} for c, auc, share in tells]
    return feature


def with_paths(findings: dict[str, Any], path_of: Callable[[int], str]) -> dict[str, Any]:
    """Returns findings in which each record has the path of its file in place of the file's key."""

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(item) for item in value]
        if isinstance(value, dict):
            if value.keys() == {"file", "offset"}:
                return {"path": path_of(value["file"]), "offset": value["offset"]}
            return {key: named(item) for key, item in value.items()}
        return value

    return {key: named(value) for key, value in findings.items()}


_NAMED = 5  # features with a warning of their own


def warnings(findings: Mapping[str, Any]) -> Iterator[DataWarning]:
    """Yields the warnings about findings. They name no file, so that every runner gives the same ones."""
    for kind in SHARED:
        section = findings.get(kind.section, {})
        for item in section.get(kind.key, ()):
            first, sampled = item["splits"][0], _sampled(section, kind.records)
            article = "a row" if kind.records == "rows" else "an image"
            message = f"leakage: {_share(item, kind.records)} {kind.says} {article} of {first}{sampled}. "
            yield DataWarning(feature="", code=kind.code, message=message + _advice(kind, item, section))
    if "images" in findings and (count := findings["images"]["two_labels"]["images"]):
        verb = "image occurs" if count == 1 else "images occur"
        sampled = _sampled(findings["images"], "images")
        message = f"labels: {count:,} {verb} with more than one label{sampled}. Decide on one."
        yield DataWarning(feature="", code="two_labels", message=message)
    if "label" in findings:
        yield from _label_warnings(findings["label"])


def _advice(kind: Shared, item: Mapping[str, Any], section: Mapping[str, Any]) -> str:
    if kind.section == "rows":
        repeated = section["repeated"]["records"] / max(1, section["repeated"]["of"])
        if repeated > item["records"] / item["of"] / 2:
            return (
                f"Rows also repeat within train ({percent(repeated)}), which few or coarse features can cause. If the "
                "rows are copies of each other, remove the copies."
            )
    return kind.advice


def _label_warnings(label: Mapping[str, Any]) -> Iterator[DataWarning]:
    leaks = [item for item in label["features"] if item["leaks"]]
    for item in leaks[:_NAMED]:
        name = item["name"]
        if classes := predicted_classes(item, label):
            first = item["tells"][0]
            of = f"{first['class']!r} ({percent(first['share'])} of the rows)"
            how = f"alone it tells the class {of} of {label['name']} from the rest with an AUC of {first['auc']:.4f}"
            how += f", and {len(classes) - 1:,} more" if len(classes) > 1 else ""
        elif "auc" in item:
            how = f"alone it predicts {label['name']} with an AUC of {item['auc']:.4f}"
        else:
            how = f"its correlation with {label['name']} is {item['correlation']:.5f}"
        yield DataWarning(
            feature=name,
            code="tells_label",
            message=f"{name}: {how} in the train split{_of_present(item, label)}. If it is not known when a "
            "prediction is made, declare it `kind: ignore`.",
        )
    more = label.get("leaks", 0) - len(leaks[:_NAMED])
    if more > 0:
        yield DataWarning(
            feature="",
            code="tells_label",
            message=f"leakage: {label['name']}, or a class of it, is predicted almost alone by "
            f"{counted(more, 'more features')}; see leakage.json.",
        )


def _of_present(feature: Mapping[str, Any], label: Mapping[str, Any]) -> str:
    """How many rows a feature was judged on, where it has no value in the others."""
    if "rows" not in feature:
        return ""
    return f", among the {feature['rows']:,} of {label['rows']:,} sampled rows that have a value"


def _share(item: Mapping[str, Any], records: str) -> str:
    split = item["splits"][1]
    return (
        f"{item['records']:,} of {item['of']:,} {records} of {split} ({percent(item['records'] / max(1, item['of']))})"
    )


def _sampled(findings: Mapping[str, Any], records: str) -> str:
    return "" if findings["share"] == 1 else f", among {looked_at(findings, records)}"
