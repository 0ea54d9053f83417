"""The images of a job: a CSV file of them in memory, or those in folders, of which few are in memory at once.

Lists rejected images again by their corrected paths or lines. No image is read here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from beam_jobs.core.source import Chosen
from schemas import storage
from schemas.images.listing import ImageBundle, Listing, bundles, list_folders, list_lines
from schemas.rejects import Reject

AT_ONCE = 10_000  # images in memory, and in a staged file


class ImageList(Protocol):
    """Images with their labels, in order."""

    @property
    def images(self) -> int:
        """How many there are, without rejects."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, each once, sorted."""

    @property
    def bytes(self) -> int:
        """The total size of the files; 0 if it is unknown."""

    @property
    def digest(self) -> str:
        """A hash of all paths in order."""

    @property
    def repeated(self) -> tuple[str, ...]:
        """Messages about images that are named more than once."""

    def bundles(self) -> Iterator[ImageBundle]:
        """The images."""

    def rejects(self) -> Iterator[tuple[Reject, ...]]:
        """What is rejected without being read, some at a time."""


@dataclasses.dataclass(frozen=True)
class ImagesInMemory:
    """Implements `ImageList`."""

    listing: Listing
    bytes: int = 0

    @property
    def images(self) -> int:
        return len(self.listing.paths)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.listing.classes

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.listing.paths).encode()).hexdigest()

    @property
    def repeated(self) -> tuple[str, ...]:
        return self.listing.repeated

    def bundles(self) -> Iterator[ImageBundle]:
        return bundles(self.listing, AT_ONCE)

    def rejects(self) -> Iterator[tuple[Reject, ...]]:
        yield self.listing.rejects


@dataclasses.dataclass(frozen=True)
class ImagesInFolders:
    """Implements `ImageList`; goes through the listed files anew each time."""

    files: storage.Listing
    images: int
    classes: tuple[str, ...]
    digest: str
    repeated: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return self.files.bytes

    def bundles(self) -> Iterator[ImageBundle]:
        first = 0
        for _, part in _parts(self.files):
            if part.paths:
                yield ImageBundle(first, part.paths, part.names, part.labels)
                first += len(part.paths)

    def rejects(self) -> Iterator[tuple[Reject, ...]]:
        for start, part in _parts(self.files):
            yield tuple(dataclasses.replace(reject, offset=start + reject.offset) for reject in part.rejects)


def images_in_folders(files: storage.Listing) -> ImagesInFolders:
    """The images among listed files; the folder of each is its label.

    Raises:
      UsageError: a path without a folder.
    """
    images, classes, digest = 0, set[str](), hashlib.sha256()
    for _, part in _parts(files):
        images += len(part.paths)
        classes.update(part.labels)
        digest.update("".join(f"{path}\n" for path in part.paths).encode())
    return ImagesInFolders(files, images, tuple(sorted(classes)), digest.hexdigest())


def _parts(files: storage.Listing) -> Iterator[tuple[int, Listing]]:
    """Listings of some files, and the place of their first file among all."""
    paths = (file.path for file in files)
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
