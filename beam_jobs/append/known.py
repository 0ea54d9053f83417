"""Which of the new input the dataset knows already: by the digest of its content, and by its path."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from schemas import storage
from schemas.dataset import Dataset
from schemas.dataset.input_files import read_inputs
from schemas.dataset.manifest import Input
from schemas.errors import MillraceError, UsageError
from schemas.storage.content import digest_file

_SHOWN = 5  # files in a message


@dataclasses.dataclass(frozen=True)
class NewFiles:
    """What of the input is new.

    Attributes:
      listing: the files.
      skipped: the others, each with the path under which the dataset, or this input, has its content.
      notes: what is to be said of the comparison.
    """

    listing: storage.Listing
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


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


def choose_new(base: Dataset, listing: storage.Listing, *, skip_known: bool) -> NewFiles:
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
    undigested: list[str] = []
    for part in read_inputs(base.path, base.manifest):
        for old in part.inputs:
            if old.path in new.files and _is_known_path(old, new, undigested):
                known[old.path] = old.path
            elif old.path in new.files:
                changed.append(old.path)
            for path in new.by_size.get(old.bytes, ()):
                digest = None if path == old.path else _digest_of(old, undigested)
                if digest is not None and new.digest(path) == digest:
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
    return NewFiles(
        storage.Listing((file.path, storage.FileStat(file.size, file.version)) for file in rest),
        tuple(sorted(known.items())),
        tuple(_undigested(undigested)),
    )


def _is_known_path(old: Input, new: _Candidates, undigested: list[str]) -> bool:
    """Whether a file that the dataset names still has the content that was read."""
    file = new.files[old.path]
    if file.size != old.bytes:
        return False
    if old.digest is not None:
        return new.digest(old.path) == old.digest
    undigested.append(old.path)
    return True


def _digest_of(old: Input, undigested: list[str]) -> str | None:
    """The digest of an input; of one without, the digest of the file, if it is there as it was read."""
    if old.digest is not None:
        return old.digest
    try:
        found = storage.stat(old.path) if storage.exists(old.path) else None
        if found is not None and (found.size, found.version) == (old.bytes, old.version):
            return digest_file(old.path, size=old.bytes, version=old.version)
    except MillraceError:
        pass
    undigested.append(old.path)
    return None


def _twice(new: _Candidates, known: dict[str, str]) -> dict[str, str]:
    """The new files that hold the same as another new one, which is not known."""
    found = {}
    for paths in new.by_size.values():
        first: dict[str, str] = {}
        for path in sorted(paths) if len(paths) > 1 else ():
            if path not in known and first.setdefault(new.digest(path), path) != path:
                found[path] = first[new.digest(path)]
    return found


def _undigested(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        yield (
            f"{len(set(paths)):,} input(s) of the dataset, such as {paths[0]}, were read by an earlier release, which "
            "kept no digests, and are not there any more as they were: they were compared by path and size alone"
        )


def few(paths: Sequence[str]) -> str:
    """The first of some paths, and how many more there are."""
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
