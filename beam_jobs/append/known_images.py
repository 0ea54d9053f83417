"""Which images the dataset knows already: by the digests of their contents, and by their paths."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection

from beam_jobs.append.known import few
from beam_jobs.images.image_lists import ImagesInFolders, ImagesInMemory, images_in_folders
from beam_jobs.images.source import FolderSource
from beam_jobs.output.base import rejects_of
from beam_jobs.output.contents import contents_of, image_digest
from schemas import storage
from schemas.dataset import Dataset
from schemas.errors import MillraceError, UsageError


@dataclasses.dataclass(frozen=True)
class NewImages:
    """What of the input is new.

    Attributes:
      source: the images; None if there are none.
      skipped: the others, each with the path under which the dataset holds its content.
      notes: what is to be said of the comparison.
    """

    source: FolderSource | None
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def choose_new_images(base: Dataset, source: FolderSource, *, skip_known: bool) -> NewImages:
    """The images that the dataset does not hold yet. Reads all images once.

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
    held = 0
    for digest, path in contents_of(base):
        held += 1
        if path in digests and digests[path] != digest:
            changed.append(path)
        for same in by_digest.get(digest, ()):
            known[same] = path if path == same else known.get(same, path)
    if changed:
        raise UsageError(
            f"{few(changed)}: known to {base.path} under this path, but with other content now. An append does not "
            "change images that were written; give the new one another name, or write the dataset again with --output."
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
    undigested = base.manifest.written - held
    note = (
        f"{undigested:,} images of {base.path} were written by an earlier release, which kept no digests: the new ones "
        "were not compared with these"
    )
    return NewImages(_without(source, known), tuple(sorted(known.items())), (note,) if undigested > 0 else ())


def _digest(path: str) -> str | None:
    try:
        return image_digest(storage.read_bytes(path)).hex()
    except MillraceError:
        return None  # it will be a reject


def _without(source: FolderSource, known: Collection[str]) -> FolderSource | None:
    """The source without some images; None if there are no others."""
    if not known:
        return source
    listed: ImagesInFolders | ImagesInMemory
    if isinstance(source.listed, ImagesInFolders):
        rest = (file for file in source.listed.files if file.path not in known)
        listed = images_in_folders(
            storage.Listing((file.path, storage.FileStat(file.size, file.version)) for file in rest)
        )
    else:
        assert isinstance(source.listed, ImagesInMemory)  # noqa: S101 - there is no other
        listing = source.listed.listing
        keep = [i for i, path in enumerate(listing.paths) if path not in known]
        columns = {name: tuple(getattr(listing, name)[i] for i in keep) for name in ("paths", "names", "labels")}
        listed = dataclasses.replace(source.listed, listing=dataclasses.replace(listing, **columns))
    if not listed.images:
        return None
    file = dataclasses.replace(source.source, bytes=listed.bytes, version=listed.digest)
    return dataclasses.replace(source, listed=listed, source=file)
