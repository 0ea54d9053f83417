"""Prepares what a report shows of leakage: each check, examples, and what each feature tells about the label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.dataset.leakage import SHARED, lines

FEATURES = 10  # those that tell most


def shown(findings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the page shows of `leakage.json`, by the names of the template.

    Args:
      findings: as `schemas.dataset.leakage.read_leakage` returns it.

    Returns:
      `lines`, one for each check; `records` and `images`, groups of examples; and where features were judged, the
      `label`, `how` they were judged, and the `features` that tell most about it.
    """
    label = findings.get("label", {})
    judged = label["features"][:FEATURES] if label.get("judged") else ()
    features = [_telling(feature) for feature in judged]
    return {
        "lines": list(lines(findings)),
        "records": list(_shared(findings, "rows")),
        "images": list(_images(findings)),
        "label": label.get("name", ""),
        "how": _how(label) if features else "",
        "features": features,
    }


def files_of(findings: Mapping[str, Any]) -> list[str]:
    """Returns the images that the page shows, each once, the most important ones first."""
    groups = list(_images(findings))
    pairs = [pair for place in range(9) for group in groups for pair in group["pairs"][place : place + 1]]
    return list(dict.fromkeys(image["path"] for pair in pairs for image in pair))


def places_of(findings: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns the path and offset of each record that the page shows."""
    places = (place for group in _shared(findings, "rows") for pair in group["pairs"] for place in pair)
    return list(dict.fromkeys((place["path"], place["offset"]) for place in places))


def telling_features(findings: Mapping[str, Any] | None) -> frozenset[str]:
    """Returns the names of features, or of columns of vectors, that tell the label."""
    features = (findings or {}).get("label", {}).get("features", ())
    return frozenset(item["name"] for item in features if item["leaks"])


def _shared(findings: Mapping[str, Any], records: str) -> Iterator[dict[str, Any]]:
    article = "a row" if records == "rows" else "an image"
    for kind in SHARED:
        for item in findings.get(kind.section, {}).get(kind.key, ()) if kind.records == records else ():
            first, second = item["splits"]
            title = f"{records.capitalize()} of {second} that {kind.says} {article} of {first}: {item['records']:,}"
            yield {"title": title, "splits": (first, second), "pairs": item["examples"]}


def _images(findings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _shared(findings, "images")
    images = findings.get("images", {})
    two = images.get("two_labels", {})
    if two.get("images"):
        yield {"title": f"Images with more than one label: {two['images']:,}", "pairs": two["examples"]}


def _how(label: Mapping[str, Any]) -> str:
    rows = f"in {label['rows']:,} rows of the train split"
    if any("auc" in item for item in label["features"]):
        return (
            f"How well the feature alone separates the classes, {rows}: the area under the ROC curve, where 0.5 is "
            f"chance. Above {label['limit']:g} the feature gives the label, or one of its common classes, away."
        )
    return (
        f"The feature's correlation with the label, {rows}: the larger of Pearson's and Spearman's, where 0 is none. "
        f"Above {label['limit']:g} the feature gives the label away."
    )


def _telling(feature: Mapping[str, Any]) -> dict[str, Any]:
    """A feature: its measure, of which class, and its share of what is possible."""
    rows = f"{feature['rows']:,} rows with a value" if "rows" in feature else ""
    of, value = "", feature.get("auc", feature.get("correlation"))
    if (best := (feature.get("tells") or [feature.get("best")])[0]) is not None:
        of = f"{best['class']} against the rest: {best['auc']:.4f}"
    return {
        "name": feature["name"],
        "value": value,
        "of": "; ".join(filter(None, (of, rows))),
        "share": 2 * value - 1 if "auc" in feature else value,
        "leaks": feature["leaks"],
    }
