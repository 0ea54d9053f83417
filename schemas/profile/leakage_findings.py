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
    found: dict[str, Any] = {"format_version": FORMAT_VERSION}
    if "rows" in profile.hashes:
        found["rows"] = _rows(profile.hashes["rows"])
    if "keys" in profile.hashes:
        found["keys"] = _keys(profile.hashes["keys"])
    if "images" in profile.hashes:
        found["images"] = _images(profile.hashes["images"])
    if SAMPLE in profile.hashes and watched is not None:
        found["label"], related = _label(profile.hashes[SAMPLE], watched)
        if related is not None:
            found["relations"] = related
    return found


def _looked_at(hashed: RecordHashes) -> dict[str, Any]:
    splits = [split for place, split in enumerate(SPLITS) if place in hashed.table.column(SPLIT).unique().to_pylist()]
    return {"records": hashed.records, "share": hashed.share, "splits": splits}


def _rows(hashed: RecordHashes) -> dict[str, Any]:
    of = duplicates.counts(np.asarray(hashed.table.column(SPLIT)))
    table = duplicates.ordered(duplicates.occurring_twice(hashed.table), "file", "offset")
    hashes, labels, splits = (np.asarray(table.column(name)) for name in (HASH, "label", SPLIT))
    same = duplicates.shared(mix(hashes ^ mix(labels + GOLDEN)), splits, of)
    train = SPLITS.index("train")  # how many of its rows are like one before them: how often that is to be expected
    told = _looked_at(hashed) | {
        "repeated": {"split": "train", "records": duplicates.repeated(hashes[splits == train]), "of": int(of[train])},
        "equal": _with_examples(same, _place_in(table)),
        "equal_but_for_label": [],
    }
    of_same = {each.splits: each.records for each in same}
    for each in duplicates.shared(hashes, splits, of):
        other = each.records - of_same.get(each.splits, 0)
        if other > 0:
            told["equal_but_for_label"].append(each.told() | {"records": other})
    return told


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


def _with_examples(found: Iterable[duplicates.Shared], example: Example) -> list[dict[str, Any]]:
    return [each.told() | {"examples": _examples(each.pairs, example)} for each in found]


def _place_in(table: pa.Table) -> Example:
    """Says where the record of a row of the table is."""
    return lambda row: {name: table.column(name)[row].as_py() for name in ("file", "offset")}


def _images(hashed: RecordHashes) -> dict[str, Any]:
    table = duplicates.ordered(hashed.table, "path")
    digests, splits = (np.asarray(table.column(name)) for name in (HASH, SPLIT))
    labels = table.column("label").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    equal = duplicates.shared(digests, splits, duplicates.counts(splits))
    count, pairs = duplicates.with_two_labels(digests, labels.astype(np.int64))
    told = {
        "repeated": duplicates.repeated(digests),
        "equal": _with_examples(equal, _image_in(table)),
        "two_labels": {"images": count, "examples": _examples(pairs, _image_in(table))},
    }
    return _looked_at(hashed) | told | _alike(table, digests, splits)


def _image_in(table: pa.Table) -> Example:
    """Says which image a row of the table is."""

    def text(name: str, row: int) -> str:
        found: str = table.column(name)[row].as_py().decode("utf-8", "surrogateescape")
        return found

    return lambda row: {
        "path": text("path", row),
        "split": SPLITS[table.column(SPLIT)[row].as_py()],
        "label": text("label", row),
    }


def _alike(table: pa.Table, digests: np.ndarray, splits: np.ndarray) -> dict[str, Any]:
    """Images that are not equal and look nearly the same."""
    clear = np.flatnonzero(np.asarray(table.column("clear")))
    across, down = (np.asarray(table.column(name))[clear] for name in ("across", "down"))
    told: dict[str, Any] = {"compared_by_look": len(clear), "near": [], "near_within": []}
    for each in find_near_duplicates(digests[clear], across, down, splits[clear]):
        pairs = tuple((int(clear[one]), int(clear[other])) for one, other in each.pairs)
        of = int((splits[clear] == SPLITS.index(each.splits[1])).sum())
        found = {"records": each.records, "of": of, "examples": _examples(pairs, _image_in(table))}
        if each.splits[0] == each.splits[1]:
            told["near_within"].append({"split": each.splits[0]} | found)
        else:
            told["near"].append({"splits": list(each.splits)} | found)
    return told


def _label(sample: RecordHashes, watched: WatchedRows) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What each feature alone tells about the label, and why none was judged; and how columns go together."""
    told: dict[str, Any] = {"name": watched.label.name, "rows": 0, "judged": False, "features": []}
    if (sampled := watched.sampled(sample)) is None:
        return told | {"because": "there is no row"}, None
    rows, classes = sampled
    told["rows"] = len(rows.labels)
    if len(classes) > CLASSES:
        return told | {"because": f"it has more than {CLASSES:,} classes"}, None
    if classes:
        sizes = np.bincount(rows.labels)
        told["rare_classes"] = int((np.minimum(sizes, sizes.sum() - sizes) < LEAST).sum())
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
        return told | {"because": "it has one class" if len(classes) == 1 else few}, related
    limit = AUC if classes else CORRELATION
    features = sorted(
        (_told(signal, classes, limit, told["rows"]) for signal in signals), key=lambda feature: not feature["leaks"]
    )
    leaks = sum(feature["leaks"] for feature in features)
    return told | {"judged": True, "limit": limit, "leaks": leaks, "features": features[:SHOWN]}, related


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


def with_paths(found: dict[str, Any], path_of: Callable[[int], str]) -> dict[str, Any]:
    """The same, with the paths of the files that records are in."""

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(each) for each in value]
        if isinstance(value, dict):
            if value.keys() == {"file", "offset"}:
                return {"path": path_of(value["file"]), "offset": value["offset"]}
            return {key: named(each) for key, each in value.items()}
        return value

    result = named(found)
    assert isinstance(result, dict)  # noqa: S101 - as it was given
    return result


_NAMED = 5  # features with a warning of their own


def warnings(found: Mapping[str, Any]) -> Iterator[DataWarning]:
    """The warnings about what was found. They name no file, so that every runner gives the same ones."""
    for kind in SHARED:
        section = found.get(kind.section, {})
        for each in section.get(kind.key, ()):
            first, sampled = each["splits"][0], _sampled(section, kind.records)
            one = "a row" if kind.records == "rows" else "an image"
            message = f"leakage: {_share(each, kind.records)} {kind.says} {one} of {first}{sampled}. "
            yield DataWarning(feature="", code=kind.code, message=message + _advice(kind, each, section))
    if "images" in found and (count := found["images"]["two_labels"]["images"]):
        verb = "image occurs" if count == 1 else "images occur"
        sampled = _sampled(found["images"], "images")
        message = f"labels: {count:,} {verb} with more than one label{sampled}. Decide on one."
        yield DataWarning(feature="", code="two_labels", message=message)
    if "label" in found:
        yield from _label_warnings(found["label"])


def _advice(kind: Shared, each: Mapping[str, Any], section: Mapping[str, Any]) -> str:
    if kind.section == "rows":
        repeated = section["repeated"]["records"] / max(1, section["repeated"]["of"])
        if repeated > each["records"] / each["of"] / 2:
            return (
                f"Rows also repeat within train ({percent(repeated)}), which few or coarse features can cause. If the "
                "rows are copies of each other, remove the copies."
            )
    return kind.advice


def _label_warnings(label: Mapping[str, Any]) -> Iterator[DataWarning]:
    leaks = [each for each in label["features"] if each["leaks"]]
    for each in leaks[:_NAMED]:
        name = each["name"]
        told = predicted_classes(each, label)
        if told:
            first = each["tells"][0]
            of = f"{first['class']!r} ({percent(first['share'])} of the rows)"
            how = f"alone it tells the class {of} of {label['name']} from the rest with an AUC of {first['auc']:.4f}"
            how += f", and {len(told) - 1:,} more" if len(told) > 1 else ""
        elif "auc" in each:
            how = f"alone it predicts {label['name']} with an AUC of {each['auc']:.4f}"
        else:
            how = f"its correlation with {label['name']} is {each['correlation']:.5f}"
        yield DataWarning(
            feature=name,
            code="tells_label",
            message=f"{name}: {how} in the train split{_of_present(each, label)}. If it is not known when a "
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


def _share(each: Mapping[str, Any], records: str) -> str:
    split = each["splits"][1]
    return (
        f"{each['records']:,} of {each['of']:,} {records} of {split} ({percent(each['records'] / max(1, each['of']))})"
    )


def _sampled(found: Mapping[str, Any], records: str) -> str:
    return "" if found["share"] == 1 else f", among {looked_at(found, records)}"
