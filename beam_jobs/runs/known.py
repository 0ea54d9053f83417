"""Which of the new input the dataset knows already: by the digest of its content, and by its path."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from typing import Generic, TypeVar

from beam_jobs.images.source import ImageSource, image_list
from beam_jobs.records.existing import contents_of, image_digest, rejects_of
from schemas import storage
from schemas.dataset import Dataset
from schemas.dataset.manifest import Input, read_inputs
from schemas.errors import MillraceError, UsageError, few
from schemas.images.listing import ImageListing
from schemas.storage.content import digest_file

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class New(Generic[T]):
    """What of the input is new.

    Attributes:
      rest: the new files, or the source of the new images.
      skipped: the others, each with the path under which the dataset, or this input, has its content.
    """

    rest: T
    skipped: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass
class _Candidates:
    """The new files, and their digests as far as they are needed: only a file of equal size can be equal."""

    files: dict[str, storage.ListedFile]
    digests: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_size: dict[int, list[str]] = {}
        for path, file in self.files.items():
            if file.size:  # empty files are alike, and hold no record
                self.by_size.setdefault(file.size, []).append(path)

    def digest(self, path: str) -> str:
        """The digest of a new file, which is read once."""
        if path not in self.digests:
            file = self.files[path]
            self.digests[path] = digest_file(path, size=file.size, version=file.version)
        return self.digests[path]


def choose_new(base: Dataset, listing: storage.Listing, *, skip_known: bool) -> New[storage.Listing]:
    """The files of rows that the dataset does not hold yet. Reads those that are as large as one that it holds.

    Args:
      base: the dataset.
      listing: the input.
      skip_known: leave out what is known, instead of refusing it.

    Raises:
      UsageError: a file is known and is not to be skipped, or is known by its path but has other content now.
      MillraceError: a file cannot be read.
    """
    new = _Candidates({file.path: file.checked() for file in listing})
    known: dict[str, str] = {}
    changed: list[str] = []
    for part in read_inputs(base.path, base.manifest):
        for old in part.inputs:
            if old.path in new.files and _is_known_path(old, new):
                known[old.path] = old.path
            elif old.path in new.files:
                changed.append(old.path)
            for path in new.by_size.get(old.bytes, ()):
                if path != old.path and new.digest(path) == old.digest:
                    known.setdefault(path, old.path)
    if changed:
        raise UsageError(
            f"{few(changed)}: known to {base.path} under this path, but with other content now. Records that were "
            "written are not changed by an append. If the file has grown, give the new records in a file of their "
            "own; if it is another file, give it another name; if it was corrected, write the dataset again with "
            "--output."
        )
    known |= _twice(new, known)
    if known and not skip_known:
        named = (path if path == old else f"{path} (as {old})" for path, old in sorted(known.items()))
        raise UsageError(
            f"{few(list(named))}: holds what is in {base.path} already, so its records would be in it twice. Give "
            "--skip_known to leave such files out."
        )
    rest = (file for path, file in new.files.items() if path not in known)
    return New(
        storage.Listing((file.path, storage.FileStat(file.size, file.version)) for file in rest),
        tuple(sorted(known.items())),
    )


def _is_known_path(old: Input, new: _Candidates) -> bool:
    """Whether a file that the dataset names still has the content that was read."""
    same_size = new.files[old.path].size == old.bytes
    return same_size and (old.digest is None or new.digest(old.path) == old.digest)  # an empty file has no digest


def _twice(new: _Candidates, known: dict[str, str]) -> dict[str, str]:
    """The new files that hold the same as another new one, which is not known."""
    found = {}
    for paths in new.by_size.values():
        first: dict[str, str] = {}
        for path in sorted(paths) if len(paths) > 1 else ():
            if path not in known and first.setdefault(new.digest(path), path) != path:
                found[path] = first[new.digest(path)]
    return found


def choose_new_images(base: Dataset, source: ImageSource, *, skip_known: bool) -> New[ImageSource | None]:
    """The images that the dataset does not hold yet; None if there are none. Reads all images once.

    Args:
      base: the dataset.
      source: the input.
      skip_known: leave out what is known, instead of refusing it.

    Raises:
      UsageError: an image is known and is not to be skipped, or is known by its path but has other content now.
    """
    paths = list(itertools.chain.from_iterable(bundle.paths for bundle in source.bundles()))
    digests = dict(zip(paths, storage.for_each(base.path, _digest, paths), strict=True))
    by_digest: dict[str, list[str]] = {}
    for path, digest in digests.items():
        if digest is not None:
            by_digest.setdefault(digest, []).append(path)
    known: dict[str, str] = {}
    changed: list[str] = []
    for digest, path in contents_of(base):
        if path in digests and digests[path] != digest:
            changed.append(path)
        for same in by_digest.get(digest, ()):
            known[same] = path if path == same else known.get(same, path)
    if changed:
        raise UsageError(
            f"{few(changed)}: known to {base.path} under this path, but with other content now. An append does not "
            "change images that were written; give the new one another name, or write the dataset again with "
            "--overwrite."
        )
    rejected = sorted({source for source, _ in rejects_of(base) if source in digests})
    if rejected and not skip_known:
        raise UsageError(
            f"{few(rejected)}: rejected by {base.path} before. If it is mended, replay its line of rejects-*.jsonl "
            "(--replay); --skip_known leaves such files out."
        )
    known |= {path: path for path in rejected}
    if known and not skip_known:
        named = [path if path == old else f"{path} (as {old})" for path, old in sorted(known.items())]
        raise UsageError(
            f"{few(named)}: {base.path} holds this image already. Give --skip_known to leave such files out."
        )
    return New(_without(source, known), tuple(sorted(known.items())))


def _digest(path: str) -> str | None:
    try:
        return image_digest(storage.read_bytes(path)).hex()
    except MillraceError:
        return None  # it will be a reject


def _without(source: ImageSource, known: Collection[str]) -> ImageSource | None:
    """The source without some images; None if there are no others."""
    if not known:
        return source
    files = source.listed.files
    if isinstance(files, ImageListing):
        keep = [i for i, path in enumerate(files.paths) if path not in known]
        columns = {name: tuple(getattr(files, name)[i] for i in keep) for name in ("paths", "names", "labels")}
        listed = image_list(dataclasses.replace(files, **columns))
    else:
        rest = (file for file in files if file.path not in known)
        listed = image_list(storage.Listing((file.path, storage.FileStat(file.size, file.version)) for file in rest))
    if not listed.images:
        return None
    file = dataclasses.replace(source.source, bytes=listed.bytes, version=listed.digest)
    return dataclasses.replace(source, listed=listed, source=file)
