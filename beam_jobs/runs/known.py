"""Finds the input files of an append that the dataset holds already, by the digest of their contents and by path."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, TypeVar

from beam_jobs.images.source import ImageSource, image_list
from beam_jobs.records.existing import contents_of, image_digest, rejects_of
from schemas import storage
from schemas.dataset import OpenDataset
from schemas.dataset.manifest import read_inputs
from schemas.errors import MillraceError, UsageError, few
from schemas.images.listing import ImageListing
from schemas.storage.content import digest_file

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class New(Generic[T]):
    """The new part of an append's input.

    Attributes:
      rest: the new files, or the source of the new images.
      skipped: the files that are not new, each with the path of the same content in the dataset or in this input.
    """

    rest: T
    skipped: tuple[tuple[str, str], ...] = ()


def choose_new(base: OpenDataset, listing: storage.Listing, *, skip_known: bool) -> New[storage.Listing]:
    """Finds the files of rows that the dataset does not hold yet.

    A file is known if the dataset, or an earlier file of the same input, has the same content. A content is read and
    digested only if another file has the same size.

    Args:
      base: the dataset.
      listing: the input.
      skip_known: True: leave known files out. False: refuse them.

    Raises:
      UsageError: a file is known, and `skip_known` is False; or the dataset was read from a file with the same path
        but another content.
      MillraceError: a file cannot be read.
    """
    files = {file.path: file.checked() for file in listing}
    by_size = collections.defaultdict[int, list[str]](list)
    for path, file in files.items():
        if file.size:  # empty files hold no record, and all have the same content
            by_size[file.size].append(path)

    @functools.cache
    def digest(path: str) -> str:
        return digest_file(path, size=files[path].size, version=files[path].version)

    # First compares the new files with the dataset's inputs, then the remaining new files with each other.
    known_paths: dict[str, str] = {}
    changed: list[str] = []
    for part in read_inputs(base.path, base.manifest):
        for old in part.inputs:
            if old.path in files:
                same_size = files[old.path].size == old.bytes
                if same_size and (old.digest is None or digest(old.path) == old.digest):  # None: an empty file
                    known_paths[old.path] = old.path
                else:
                    changed.append(old.path)
            for path in by_size.get(old.bytes, ()):
                if path != old.path and digest(path) == old.digest:
                    known_paths.setdefault(path, old.path)
    _refuse_changed(base, changed)
    for paths in by_size.values():
        first: dict[str, str] = {}  # content digest -> the first new file with this content
        for path in sorted(paths) if len(paths) > 1 else ():
            if path not in known_paths and first.setdefault(digest(path), path) != path:
                known_paths[path] = first[digest(path)]
    _refuse_known(base, known_paths, skip_known=skip_known)
    rest = (file for path, file in files.items() if path not in known_paths)
    return New(
        storage.Listing((file.path, storage.FileStat(file.size, file.version)) for file in rest),
        tuple(sorted(known_paths.items())),
    )


def _refuse_changed(base: OpenDataset, paths: Sequence[str]) -> None:
    """Raises UsageError if there are `paths`: files that have changed since the dataset was written."""
    if paths:
        raise UsageError(
            f"{few(paths)}: known to {base.path} under this path, but with other content now. An append does not "
            "change records that were written. Give new records in a file of their own, with a name of its own; if "
            "the file was corrected, write the dataset again with --overwrite."
        )


def _refuse_known(base: OpenDataset, known_paths: Mapping[str, str], *, skip_known: bool) -> None:
    """Raises UsageError if there are known files and they are not to be skipped."""
    if known_paths and not skip_known:
        named = [path if path == old else f"{path} (as {old})" for path, old in sorted(known_paths.items())]
        raise UsageError(
            f"{few(named)}: holds what is in {base.path} already, so its records would be in it twice. Give "
            "--skip_known to leave such files out."
        )


def choose_new_images(base: OpenDataset, source: ImageSource, *, skip_known: bool) -> New[ImageSource | None]:
    """Finds the images that the dataset does not hold yet. Reads every image once, to compute its digest.

    Args:
      base: the dataset.
      source: the input.
      skip_known: True: leave known images out. False: refuse them.

    Returns:
      The new images as a source, and the known ones; `rest` is None if no image is new.

    Raises:
      UsageError: an image is known, or was rejected before, and `skip_known` is False; or the dataset holds an image
        with the same path but another content.
    """
    paths = list(itertools.chain.from_iterable(bundle.paths for bundle in source.bundles()))
    digests = dict(zip(paths, storage.for_each(base.path, _digest, paths), strict=True))
    by_digest: dict[str, list[str]] = {}
    for path, digest in digests.items():
        if digest is not None:
            by_digest.setdefault(digest, []).append(path)
    known_paths: dict[str, str] = {}
    changed: list[str] = []
    for digest, path in contents_of(base):
        if path in digests and digests[path] != digest:
            changed.append(path)
        for same in by_digest.get(digest, ()):
            known_paths[same] = path if path == same else known_paths.get(same, path)
    _refuse_changed(base, changed)
    rejected = sorted({source for source, _ in rejects_of(base) if source in digests})
    if rejected and not skip_known:
        raise UsageError(
            f"{few(rejected)}: rejected by {base.path} before. If it is mended, replay its line of rejects-*.jsonl "
            "(--replay); --skip_known leaves such files out."
        )
    known_paths |= {path: path for path in rejected}
    _refuse_known(base, known_paths, skip_known=skip_known)
    return New(_without(source, known_paths), tuple(sorted(known_paths.items())))


def _digest(path: str) -> str | None:
    """The digest of an image's file, in hexadecimal digits; None if the file cannot be read."""
    try:
        return image_digest(storage.read_bytes(path)).hex()
    except MillraceError:
        return None  # the job will reject the image


def _without(source: ImageSource, known_paths: Collection[str]) -> ImageSource | None:
    """The source without the images at `known_paths`; None if no image is left."""
    if not known_paths:
        return source
    files = source.listed.files
    if isinstance(files, ImageListing):
        keep = [i for i, path in enumerate(files.paths) if path not in known_paths]
        columns = {name: tuple(getattr(files, name)[i] for i in keep) for name in ("paths", "names", "labels")}
        listed = image_list(dataclasses.replace(files, **columns))
    else:
        rest = (file for file in files if file.path not in known_paths)
        listed = image_list(storage.Listing((file.path, storage.FileStat(file.size, file.version)) for file in rest))
    if not listed.images:
        return None
    file = dataclasses.replace(source.source, bytes=listed.bytes, version=listed.digest)
    return dataclasses.replace(source, listed=listed, source=file)
