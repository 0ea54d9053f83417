"""Reads a dataset's `leakage.json`: what gives away the labels of eval and test rows, as the job found it.

For example, rows that are also in the train split, or a feature that is a copy of the label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import counted
from schemas.spec.table import SPLITS
from schemas.storage.json_files import read_versioned

FORMAT_VERSION = 1


class Shared(NamedTuple):
    """Something that two splits may have in common, and the warning about it.

    Attributes:
      section: the section of `leakage.json`.
      key: the key in that section.
      records: what the records are called.
      code: the code of the warning.
      says: the words between the two splits in a message: `N rows of eval <says> a row of train`.
      advice: what to do.
    """

    section: str
    key: str
    records: str
    code: str
    says: str
    advice: str


SHARED = (
    Shared(
        "rows",
        "equal",
        "rows",
        "equal_rows",
        "have the features and the label of",
        "Remove the copies, or split by what they share.",
    ),
    Shared(
        "keys",
        "in_two_splits",
        "rows",
        "key_in_two_splits",
        "have the key of",
        "Rows of one key belong in one split: split by the key.",
    ),
    Shared("images", "equal", "images", "equal_images", "are equal to", "Remove the copies, or split by content."),
    Shared(
        "images",
        "near",
        "images",
        "near_equal_images",
        "look nearly the same as",
        "The report shows some of them. Remove the copies.",
    ),
)


def read_leakage(data_dir: str, manifest: Manifest) -> dict[str, Any] | None:
    """Reads the run's `leakage.json`. docs/leakage.md describes its keys.

    Returns:
      The values of the file; None if the run has no such file.

    Raises:
      MillraceError: the file cannot be read.
    """
    path = manifest.path_of(data_dir, layout.LEAKAGE)
    return None if path is None else read_versioned(path, FORMAT_VERSION, "what the job found")


def looked_at(findings: Mapping[str, Any], records: str) -> str:
    """Returns how many records were compared, for the end of a sentence.

    Returns `all 5,000 rows`, or `1/4 of 8,000,000 rows, chosen by a hash of what is compared`.

    Args:
      findings: a section of `leakage.json`.
      records: what the records are called.
    """
    share, count = findings["share"], findings["records"]
    if share == 1:
        return f"all {counted(count, records)}"
    return f"1/{round(1 / share):,} of {count:,} {records}, chosen by a hash of what is compared"


def lines(findings: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line of text for each check, also if the check found nothing."""
    if "rows" in findings:
        rows = findings["rows"]
        yield f"equal rows in two splits: {_of_splits(rows, 'equal')} ({looked_at(rows, 'rows')})"
        repeated = rows["repeated"]
        if repeated["records"]:
            yield f"equal rows within {repeated['split']}: {repeated['records']:,} of {repeated['of']:,} repeat another"
    if "keys" in findings:
        keys = findings["keys"]
        yield f"keys in two splits: {_of_splits(keys, 'in_two_splits')} ({looked_at(keys, 'rows')})"
    if "images" in findings:
        images = findings["images"]
        yield f"equal images in two splits: {_of_splits(images, 'equal')} ({looked_at(images, 'images')})"
        near = _of_splits(images, "near")
        yield f"nearly equal images in two splits: {near} ({images['compared_by_look']:,} compared)"
        yield f"equal images with two labels: {images['two_labels']['images']:,}"
    if "label" in findings:
        label = findings["label"]
        if not label["judged"]:
            yield f"features that tell the label: not judged, because {label['because']}"
        else:
            names = [_with_classes(item, label) for item in label["features"] if item["leaks"]]
            more = f" and {label['leaks'] - len(names):,} more" if label["leaks"] > len(names) else ""
            rare = label.get("rare_classes", 0)
            few = f" ({rare:,} of its classes have too few rows to judge)" if rare else ""
            yield f"features that tell the label: {', '.join(names) + more if names else 'none'}{few}"


def percent(share: float) -> str:
    """Returns a share in percent. A very small share is `< 0.1 %`, and only a share of 0 is shown as 0."""
    return f"{100 * share:.1f} %" if share >= 0.0005 or not share else "< 0.1 %"


def predicted_classes(feature: Mapping[str, Any], label: Mapping[str, Any]) -> list[str]:
    """Returns the classes that a feature gives away, the clearest first; empty if it gives away the label as a whole.

    Args:
      feature: a feature's entry in the section `label` of `leakage.json`.
      label: that section.
    """
    whole = feature.get("auc", 0.0) > label.get("limit", 1.0)
    return [] if whole else [item["class"] for item in feature.get("tells", ())]


def _with_classes(feature: Mapping[str, Any], label: Mapping[str, Any]) -> str:
    """Returns a feature's name, with the classes that it gives away, and the number of rows in which it has a value."""
    classes = ", ".join(map(repr, predicted_classes(feature, label)))
    rows = f"among {feature['rows']:,} rows with a value" if "rows" in feature else ""
    details = ", ".join(filter(None, (f"of {classes}" if classes else "", rows)))
    return f"{feature['name']} ({details})" if details else str(feature["name"])


def _of_splits(findings: Mapping[str, Any], what: str) -> str:
    """Returns how many records of one split were found in another, for each pair of splits."""
    if len(findings.get("splits", SPLITS)) < 2:
        return "not judged, because there is one split"
    pairs = (f"{item['records']:,} of {item['splits'][1]} in {item['splits'][0]}" for item in findings[what])
    return ", ".join(pairs) or "none"
