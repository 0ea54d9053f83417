"""What a job found that a model could know of eval and test without having learned it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.storage.json_files import read_versioned

FORMAT_VERSION = 1


def read_leakage(data_dir: str, manifest: Manifest) -> dict[str, Any] | None:
    """The values of the run's `leakage.json`; None if it has none. docs/leakage.md describes the keys.

    Raises:
      MillraceError: it cannot be read.
    """
    name = layout.join(manifest.run, layout.LEAKAGE)
    if name not in {file.path for file in manifest.files}:
        return None
    return read_versioned(layout.join(data_dir, name), FORMAT_VERSION, "what the job found")


def looked_at(found: Mapping[str, Any], records: str) -> str:
    """How much was compared, as a sentence's end: `all 5,000 rows`, or `1/4 of 8,000,000 rows, chosen by a hash`."""
    share, count = found["share"], found["records"]
    if share == 1:
        return f"all {count:,} {records}"
    return f"1/{round(1 / share):,} of {count:,} {records}, chosen by a hash of what is compared"


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What was looked at, a line for each check, whether it found something or not."""
    if "rows" in found:
        rows = found["rows"]
        yield f"equal rows: {_of_splits(rows['equal'])} ({looked_at(rows, 'rows')})"
        if rows["equal_but_for_label"]:
            yield f"equal rows with another label: {_of_splits(rows['equal_but_for_label'])}"
    if "keys" in found:
        yield f"keys in two splits: {_of_splits(found['keys']['in_two_splits'])} ({looked_at(found['keys'], 'rows')})"
    if "images" in found:
        images = found["images"]
        yield f"equal images: {_of_splits(images['equal'])} ({looked_at(images, 'images')})"
        yield f"nearly equal images: {_of_splits(images['near'])} ({images['compared_by_look']:,} compared)"
        yield f"equal images with two labels: {images['two_labels']['images']:,}"
    if "label" in found:
        label = found["label"]
        if not label["judged"]:
            yield f"features that tell the label: not judged, because {label['because']}"
        else:
            names = [each["name"] for each in label["features"] if each["leaks"]]
            more = f" and {label['leaks'] - len(names):,} more" if label["leaks"] > len(names) else ""
            yield f"features that tell the label: {', '.join(names) + more if names else 'none'}"


def _of_splits(found: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['records']:,} of {each['splits'][1]} in {each['splits'][0]}" for each in found) or "none"
