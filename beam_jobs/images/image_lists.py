"""The images of a job: listed in memory or folder by folder, listed again for a replay, and staged for the workers.

Workers read the staged files part by part. No image is read here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.source import Chosen
from schemas import storage
from schemas.dataset import layout
from schemas.images.listing import (
    BUNDLE,
    ImageBundle,
    Listing,
    bundles,
    folders_like_splits,
    list_folders,
    list_lines,
    note_of_splits,
)
from schemas.rejects import Reject
from schemas.storage.json_files import parse_json

if TYPE_CHECKING:
    import apache_beam as beam

AT_ONCE = 10_000  # images in memory, and in a staged file


@dataclasses.dataclass(frozen=True)
class ImageList:
    """Images with their labels, in order.

    Attributes:
      held: files in folders of their labels, which are gone through anew each time; or a listing in memory.
      images: how many there are, without rejects.
      classes: the labels, each once, sorted.
      digest: a hash of all paths in order.
      bytes: the total size of the files; 0 if it is unknown.
      notes: messages about images that are named more than once, and about folders that look like splits.
    """

    held: storage.Listing | Listing
    images: int
    classes: tuple[str, ...]
    digest: str
    bytes: int = 0
    notes: tuple[str, ...] = ()

    def bundles(self) -> Iterator[ImageBundle]:
        """The images, at most AT_ONCE at a time."""
        first = 0
        for _, part in _parts(self.held):
            for bundle in bundles(part, AT_ONCE):
                yield dataclasses.replace(bundle, first=first + bundle.first)
            first += len(part.paths)

    def rejects(self) -> Iterator[tuple[Reject, ...]]:
        """What is rejected without being read, some at a time."""
        for start, part in _parts(self.held):
            yield tuple(dataclasses.replace(reject, offset=start + reject.offset) for reject in part.rejects)


def image_list(held: storage.Listing | Listing) -> ImageList:
    """The images of a listing, or of listed files, of which the folder of each is its label.

    Raises:
      UsageError: a path without a folder.
    """
    images, classes, splits, digest = 0, set[str](), set[str](), hashlib.sha256()
    for _, part in _parts(held):
        images += len(part.paths)
        classes.update(part.labels)
        splits.update(folders_like_splits(part.paths))
        digest.update("".join(f"{path}\n" for path in part.paths).encode())
    if isinstance(held, Listing):
        size, notes = 0, held.repeated
    else:
        size, notes = held.bytes, (note_of_splits(splits),) if len(splits) > 1 else ()
    return ImageList(held, images, tuple(sorted(classes)), digest.hexdigest(), size, notes)


def _parts(held: storage.Listing | Listing) -> Iterator[tuple[int, Listing]]:
    """Listings of some files, and the place of their first file among all."""
    if isinstance(held, Listing):
        yield 0, held
        return
    paths = (file.path for file in held)
    start = 0
    while some := list(itertools.islice(paths, AT_ONCE)):
        yield start, list_folders(some)
        start += len(some)


def list_again(records: Sequence[Chosen], source: str, *, root: str | None) -> tuple[Listing, tuple[Chosen, ...]]:
    """The listing of rejects by their corrected raw bytes (a path, or a line `path,label`), and its records.

    Args:
      records: the rejects.
      source: the listing's name; with a root, the CSV file of the lines, which need not exist.
      root: the folder that the lines' paths are under; None: the bytes are paths.

    Raises:
      UsageError: a path has no folder to be its label, or the root is not a folder.
    """
    listed: list[tuple[Chosen, Listing]] = []
    rejects: list[Reject] = []
    for record in records:
        if root is None:
            one = list_folders([os.fsdecode(record.raw)])
        else:
            one = list_lines([(record.was.offset, record.raw.decode("utf-8", "replace"))], source, root)
        rejects += [still_rejected(record, reject) for reject in one.rejects]
        if one.paths:
            listed.append((record, one))
    listing = Listing(
        paths=tuple(one.paths[0] for _, one in listed),
        names=tuple(one.names[0] for _, one in listed),
        labels=tuple(one.labels[0] for _, one in listed),
        rejects=tuple(rejects),
    )
    return listing, tuple(record for record, _ in listed)


def still_rejected(record: Chosen, reject: Reject) -> Reject:
    """A record that is rejected again: its old place, its corrected bytes, its new reason."""
    return dataclasses.replace(reject, source=record.was.source, offset=record.was.offset, raw=record.raw)


@dataclasses.dataclass(frozen=True)
class StagedImages:
    """Where a listing is staged, and how many images it has. This is all that the pipeline holds of it."""

    folder: str
    parts: int
    images: int

    def read(self, part: int) -> Iterator[ImageBundle]:
        """The images of a part, in bundles of at most BUNDLE."""
        first, *columns = parse_json(storage.read_bytes(_path_of(self.folder, part)))
        for i in range(0, len(columns[0]), BUNDLE):
            yield ImageBundle(first + i, *(tuple(column[i : i + BUNDLE]) for column in columns))

    def create(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The bundles, distributed over the workers."""
        return spread(pipeline, self.parts, self.read)


def spread(pipeline: beam.Pipeline, parts: int, read: Callable[[int], Iterator[Any]]) -> beam.PCollection:
    """What `read` yields of the staged parts of a listing, distributed over the workers."""
    import apache_beam as beam

    return (
        pipeline
        | "ListingParts" >> beam.Create(list(range(parts)), reshuffle=False)
        | "Bundles" >> beam.FlatMap(read)
        | "SpreadBundles" >> beam.Reshuffle()
    )


def _path_of(folder: str, part: int) -> str:
    return layout.join(folder, f"images-{part:05d}.json")


def stage_images(folder: str, bundles: Iterable[ImageBundle]) -> StagedImages:
    """Writes images to a folder, each bundle to a file: few are held in memory, however many they are."""
    parts = images = 0
    for bundle in bundles:
        # Names that are not UTF-8 have surrogates, which JSON escapes.
        data = json.dumps([bundle.first, bundle.paths, bundle.names, bundle.labels]).encode()
        storage.write_bytes(_path_of(folder, parts), data)
        parts += 1
        images += len(bundle.paths)
    return StagedImages(folder, parts, images)
