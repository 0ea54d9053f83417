"""Judges what records left behind: what is found, as the JSON values of `leakage.json`, and the warnings that follow.

A record's place is `{"file": KEY, "offset": BYTES}` here, until `with_paths` gives the file its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.dataset.leakage import FORMAT_VERSION, SHARED, Shared, looked_at, percent, predicted_classes
from schemas.dataset.manifest import DataWarning
from schemas.errors import counted
from schemas.profile import duplicates
from schemas.profile.duplicates import HASH, SPLIT, RecordHashes
from schemas.profile.label_leaks import LEAST, LabelSignal, label_signals
from schemas.profile.leakage import SAMPLE, LeakageProfile, WatchedRows
from schemas.profile.near_duplicates import find_near_duplicates
from schemas.profile.relations import relations
from schemas.spec.split_hash import GOLDEN, mix
from schemas.spec.table import SPLITS

AUC = 0.99  # of a class against the rest, or of all of them in the mean
CORRELATION = 0.999
CLASSES = 1000  # of a label; one with more in the sample is not judged
SHOWN = 20  # features that are listed, those that tell most


def find(profile: LeakageProfile, watched: WatchedRows | None) -> dict[str, Any]:
    """What was found. docs/leakage.md describes the keys.

    Args:
      profile: of all records.
      watched: what was looked at of rows; None for images.
    """
    findings: dict[str, Any] = {"format_version": FORMAT_VERSION}
    if "rows" in profile.hashes:
        findings["rows"] = _rows(profile.hashes["rows"])
    if "keys" in profile.hashes:
        findings["keys"] = _keys(profile.hashes["keys"])
    if "images" in profile.hashes:
        findings["images"] = _images(profile.hashes["images"])
    if SAMPLE in profile.hashes and watched is not None:
        findings["label"], related = _label(profile.hashes[SAMPLE], watched)
        if related is not None:
            findings["relations"] = related
    return findings


def _looked_at(hashed: RecordHashes) -> dict[str, Any]:
    splits = [split for place, split in enumerate(SPLITS) if place in hashed.table.column(SPLIT).unique().to_pylist()]
    return {"records": hashed.records, "share": hashed.share, "splits": splits}


def _rows(hashed: RecordHashes) -> dict[str, Any]:
    of = duplicates.counts(np.asarray(hashed.table.column(SPLIT)))
    table = duplicates.ordered(duplicates.occurring_twice(hashed.table), "file", "offset")
    hashes, labels, splits = (np.asarray(table.column(name)) for name in (HASH, "label", SPLIT))
    same = duplicates.shared(mix(hashes ^ mix(labels + GOLDEN)), splits, of)
    train = SPLITS.index("train")  # how many of its rows are like one before them: how often that is to be expected
    result = _looked_at(hashed) | {
        "repeated": {"split": "train", "records": duplicates.repeated(hashes[splits == train]), "of": int(of[train])},
        "equal": _with_examples(same, _place_in(table)),
        "equal_but_for_label": [],
    }
    of_same = {item.splits: item.records for item in same}
    for item in duplicates.shared(hashes, splits, of):
        other = item.records - of_same.get(item.splits, 0)
        if other > 0:
            result["equal_but_for_label"].append(item.told() | {"records": other})
    return result


def _keys(hashed: RecordHashes) -> dict[str, Any]:
    of = duplicates.counts(np.asarray(hashed.table.column(SPLIT)))
    table = duplicates.ordered(duplicates.occurring_twice(hashed.table), "file", "offset")
    hashes, splits = (np.asarray(table.column(name)) for name in (HASH, SPLIT))
    same = duplicates.shared(hashes, splits, of)
    return _looked_at(hashed) | {"in_two_splits": _with_examples(same, _place_in(table))}


Pairs = tuple[tuple[int, int], ...]
Example = Callable[[int], dict[str, Any]]


def _examples(pairs: Pairs, example: Example) -> list[list[dict[str, Any]]]:
    return [[example(place) for place in pair] for pair in pairs]


def _with_examples(findings: Iterable[duplicates.Shared], example: Example) -> list[dict[str, Any]]:
    return [item.told() | {"examples": _examples(item.pairs, example)} for item in findings]


def _place_in(table: pa.Table) -> Example:
    """Says where the record of a row of the table is."""
    return lambda row: {name: table.column(name)[row].as_py() for name in ("file", "offset")}


def _images(hashed: RecordHashes) -> dict[str, Any]:
    table = duplicates.ordered(hashed.table, "path")
    digests, splits = (np.asarray(table.column(name)) for name in (HASH, SPLIT))
    labels = table.column("label").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    equal = duplicates.shared(digests, splits, duplicates.counts(splits))
    count, pairs = duplicates.with_two_labels(digests, labels.astype(np.int64))
    result = {
        "repeated": duplicates.repeated(digests),
        "equal": _with_examples(equal, _image_in(table)),
        "two_labels": {"images": count, "examples": _examples(pairs, _image_in(table))},
    }
    return _looked_at(hashed) | result | _alike(table, digests, splits)


def _image_in(table: pa.Table) -> Example:
    """Says which image a row of the table is."""

    def text(name: str, row: int) -> str:
        value: bytes = table.column(name)[row].as_py()
        return value.decode("utf-8", "surrogateescape")

    return lambda row: {
        "path": text("path", row),
        "split": SPLITS[table.column(SPLIT)[row].as_py()],
        "label": text("label", row),
    }


def _alike(table: pa.Table, digests: np.ndarray, splits: np.ndarray) -> dict[str, Any]:
    """Images that are not equal and look nearly the same."""
    clear = np.flatnonzero(np.asarray(table.column("clear")))
    across, down = (np.asarray(table.column(name))[clear] for name in ("across", "down"))
    result: dict[str, Any] = {"compared_by_look": len(clear), "near": [], "near_within": []}
    for item in find_near_duplicates(digests[clear], across, down, splits[clear]):
        pairs = tuple((int(clear[left]), int(clear[other])) for left, other in item.pairs)
        of = int((splits[clear] == SPLITS.index(item.splits[1])).sum())
        shared = {"records": item.records, "of": of, "examples": _examples(pairs, _image_in(table))}
        if item.splits[0] == item.splits[1]:
            result["near_within"].append({"split": item.splits[0]} | shared)
        else:
            result["near"].append({"splits": list(item.splits)} | shared)
    return result


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
    features = sorted(
        (_told(signal, classes, limit, result["rows"]) for signal in signals), key=lambda feature: not feature["leaks"]
    )
    leaks = sum(feature["leaks"] for feature in features)
    return result | {"judged": True, "limit": limit, "leaks": leaks, "features": features[:SHOWN]}, related


def _told(signal: LabelSignal, names: Sequence[str], limit: float, rows: int) -> dict[str, Any]:
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
    """The same, with the paths of the files that records are in."""

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
    """The warnings about what was found. They name no file, so that every runner gives the same ones."""
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
