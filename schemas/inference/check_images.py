"""An existing schema and new images: classes that differ, and images that would be rejected."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from schemas import storage
from schemas.errors import UsageError
from schemas.images.listing import list_csv, list_folders
from schemas.images.reading import ERRORS, ImageFile
from schemas.inference.declaration import counted, percent
from schemas.inference.images import AT_ONCE, chosen
from schemas.inference.survey import Progress
from schemas.spec.images import ImageFolderSchema, ImageSchema


@dataclasses.dataclass
class ComparedImages:
    """How images differ from a schema: rejects by reason with the first of each, classes that do not occur."""

    read: int
    looked_at: int
    rejected: collections.Counter[str]
    examples: dict[str, str]
    absent: tuple[str, ...]

    @property
    def loses(self) -> bool:
        """Whether a job with this schema would reject images."""
        return bool(self.rejected)

    def lines(self, source: str) -> list[str]:
        """The differences as text."""
        told = [
            f"rejected: {counted(count, 'image')} ({percent(count, self.looked_at)}), {reason}; "
            f"first {self.examples[reason]}"
            for reason, count in self.rejected.most_common()
        ]
        if self.absent:
            told.append(f"classes that do not occur: {', '.join(self.absent[:8])}")
        if not self.looked_at:
            return [*told, f"{source} does not fit: a job finds no image to write"]
        good = self.looked_at - sum(self.rejected.values())
        verdict = "would lose images" if self.loses else "fits"
        return [*told, f"{source} {verdict}: {good:,} of {counted(self.looked_at, 'image')} would be written"]

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "read": self.read,
            "looked_at": self.looked_at,
            "lost": sum(self.rejected.values()),
            "rejected": [
                {"reason": reason, "images": count, "first": self.examples[reason]}
                for reason, count in self.rejected.most_common()
            ],
            "absent_classes": list(self.absent),
        }


def check_images(
    schema: ImageSchema, paths: Sequence[str], *, sample: bool = False, progress: Progress = lambda done, share: None
) -> ComparedImages:
    """Reads images as a job would, up to their headers; pixels are not decoded.

    Raises:
        UsageError: the schema lists its images in a CSV file, and several files are given.
    """
    if schema.images.listing == "csv":
        if len(paths) != 1:
            raise UsageError(f"the schema reads one CSV file of path,label; found {len(paths)} files")
        listing = list_csv(paths[0], schema.images.root or "")
    else:
        listing = list_folders(paths)
    values = schema.label.values if isinstance(schema, ImageFolderSchema) else None
    rejected = collections.Counter(reject.reason for reject in listing.rejects)
    examples = {reject.reason: f"{reject.source}: {reject.detail}" for reject in reversed(listing.rejects)}
    good = []
    for path, label in zip(listing.paths, listing.labels, strict=True):
        if values is not None and label not in values:
            rejected["label_not_in_values"] += 1
            examples.setdefault("label_not_in_values", f"{path}: found {label!r}")
        else:
            good.append(path)
    some = chosen(good, sample=sample)

    def fault(path: str) -> tuple[str, str] | None:
        file = ImageFile(path, schema.images)
        try:
            file.measure()
            file.read()
        except ERRORS as error:
            refusal = file.refusal(error)
            return refusal.reason, refusal.detail
        return None

    for start in range(0, len(some), AT_ONCE):
        part = some[start : start + AT_ONCE]
        for path, found in zip(part, storage.for_each(part[0], fault, part), strict=True):
            if found is not None:
                rejected[found[0]] += 1
                examples.setdefault(found[0], f"{path}: {found[1]}")
        progress(start + len(part), (start + len(part)) / len(some))
    looked = len(some) + len(listing.rejects) + len(listing.paths) - len(good)
    absent = tuple(value for value in values or () if value not in set(listing.labels))
    return ComparedImages(len(listing.paths) + len(listing.rejects), looked, rejected, examples, absent)
