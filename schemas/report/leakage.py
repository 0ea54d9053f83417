"""What the page shows of leakage: each check, examples of what was found, and what each feature tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.dataset.leakage import SHARED, lines

FEATURES = 10  # those that tell most


@dataclasses.dataclass(frozen=True)
class Group:
    """Examples of one finding: pairs of places, of records or of images."""

    title: str
    splits: tuple[str, str]
    pairs: Sequence[Sequence[Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Telling:
    """What a feature alone tells about the label: a measure, of which class, and its share of what is possible."""

    name: str
    value: float
    of: str
    share: float
    leaks: bool


@dataclasses.dataclass(frozen=True)
class Leakage:
    """What the page shows.

    Attributes:
      lines: a line for each check, whether it found something or not.
      records: examples of equal rows and keys.
      images: examples of equal images, and of those that look nearly the same.
      label: the label's name.
      how: how features were judged.
      features: those that tell most about the label.
    """

    lines: tuple[str, ...]
    records: tuple[Group, ...]
    images: tuple[Group, ...]
    label: str
    how: str
    features: tuple[Telling, ...]


def shown(found: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> Leakage:
    """What the page shows of `leakage.json`. `columns`: the names of columns in the files, where these differ."""
    label = found.get("label", {})
    features = tuple(_telling(label["features"][:FEATURES], columns or {})) if label.get("judged") else ()
    return Leakage(
        tuple(lines(found)),
        tuple(_shared(found, "rows")),
        tuple(_images(found)),
        label.get("name", ""),
        _how(label) if features else "",
        features,
    )


def files_of(found: Mapping[str, Any]) -> list[str]:
    """The images that the page shows, each once, the most important ones first."""
    groups = shown(found).images
    pairs = [pair for place in range(9) for group in groups for pair in group.pairs[place : place + 1]]
    paths = [image["path"] for pair in pairs for image in pair]
    return list(dict.fromkeys(paths))


def places_of(found: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The path and offset of each record that the page shows."""
    places = (place for group in _shared(found, "rows") for pair in group.pairs for place in pair)
    return list(dict.fromkeys((place["path"], place["offset"]) for place in places))


def telling_features(found: Mapping[str, Any] | None) -> frozenset[str]:
    """The names of features, or of columns of vectors, that tell the label."""
    features = (found or {}).get("label", {}).get("features", ())
    return frozenset(each["name"] for each in features if each["leaks"])


def _shared(found: Mapping[str, Any], records: str) -> Iterator[Group]:
    article = "a row" if records == "rows" else "an image"
    for kind in SHARED:
        for each in found.get(kind.section, {}).get(kind.key, ()) if kind.records == records else ():
            first, second = each["splits"]
            title = f"{records.capitalize()} of {second} that {kind.says} {article} of {first}: {each['records']:,}"
            yield Group(title, (first, second), each["examples"])


def _images(found: Mapping[str, Any]) -> Iterator[Group]:
    yield from _shared(found, "images")
    images = found.get("images", {})
    two = images.get("two_labels", {})
    if two.get("images"):
        yield Group(f"Images with more than one label: {two['images']:,}", ("", ""), two["examples"])
    for each in images.get("near_within", ()):
        split = each["split"]
        title = f"Images of {split} that look nearly the same as another one: {each['records']:,}"
        yield Group(title, (split, split), each["examples"])


def _how(label: Mapping[str, Any]) -> str:
    rows = f"in {label['rows']:,} rows of the train split"
    if any("auc" in each for each in label["features"]):
        return (
            f"How well the feature alone separates the classes, {rows}: the area under the ROC curve, where 0.5 is "
            f"chance. Above {label['limit']:g} the feature gives the label, or one of its common classes, away."
        )
    return (
        f"The feature's correlation with the label, {rows}: the larger of Pearson's and Spearman's, where 0 is none. "
        f"Above {label['limit']:g} the feature gives the label away."
    )


def _telling(features: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Iterator[Telling]:
    for each in features:
        name = columns.get(each["name"], each["name"])
        rows = f"{each['rows']:,} rows with a value" if "rows" in each else ""
        if "auc" in each:
            best = (each.get("tells") or [each.get("best")])[0]
            of = "" if best is None else f"{best['class']} against the rest: {best['auc']:.4f}"
            yield Telling(name, each["auc"], "; ".join(filter(None, (of, rows))), 2 * each["auc"] - 1, each["leaks"])
        else:
            yield Telling(name, each["correlation"], rows, each["correlation"], each["leaks"])
