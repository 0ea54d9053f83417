"""Which exports there are: a single one, or a folder of them whose names are numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import NOTES_PATH, read_notes
from schemas.storage import folders

GRAPH = "saved_model.pb"
_BEST = "export/best"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where exports come from.

    Attributes:
      folder: of numbered exports; or the one export, where `single`.
      single: there is only this export, and no other will come.
    """

    folder: str
    single: bool

    def versions(self) -> list[str]:
        """The versions that there are, newest first."""
        if self.single:
            return [_version(self.folder)]
        names = [name.rstrip("/") for name in storage.listdir(self.folder)]
        return sorted((name for name in names if _is_number(name)), key=int, reverse=True)

    def path(self, version: str) -> str:
        """The folder of a version."""
        return self.folder if self.single else storage.join(self.folder, version)


def find_source(path: str) -> Source:
    """What a path holds: an export, a model directory, or a folder of numbered exports.

    Raises:
      UsageError: none of these.
    """
    storage.check_scheme(path, "--model_dir ")
    path = path.rstrip("/")
    if storage.exists(storage.join(path, GRAPH)):
        return Source(path, single=True)
    best = storage.join(path, _BEST)
    source = Source(best if storage.exists(best) else path, single=False)
    if not storage.exists(source.folder):
        raise UsageError(f"{path}: no such folder; expected a model directory, an export, or a folder of exports")
    if not source.versions():
        raise UsageError(
            f"{source.folder}: no exports in it yet; expected folders whose names are numbers, as in {_BEST} of a "
            "model directory. Train a model first, or give another folder"
        )
    return source


def _version(folder: str) -> str:
    """The number of an export's folder; 1 where its name is none."""
    name = folder.rpartition("/")[2]
    return name if _is_number(name) else "1"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


class NotFetched(MillraceError):
    """An export cannot be read, or is not whole yet: this says nothing about the export, so it is tried again."""


@contextlib.contextmanager
def on_local_disk(folder: str) -> Iterator[str]:
    """The folder itself; or a copy of it, which is removed at the end, since what is loaded needs its files no more.

    Raises:
      NotFetched: a file is missing, the store does not answer, or the disk is full.
      MillraceError: what the block raises, with the export's own path in place of the copy's.
    """
    if storage.is_local(folder):
        yield folder
        return
    with contextlib.ExitStack() as stack:
        try:
            _check_whole(folder)
            with storage.wrap_errors(folder):
                copy = stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-serve-"))
            with _named(folder, copy):
                folders.copy(folder, copy)
        except MillraceError as error:
            raise NotFetched(str(error)) from error
        with _named(folder, copy):
            yield copy


@contextlib.contextmanager
def _named(folder: str, copy: str) -> Iterator[None]:
    """Has errors name the export and not its copy."""
    try:
        yield
    except MillraceError as error:
        raise type(error)(str(error).replace(copy, folder)) from error


def _check_whole(folder: str) -> None:
    """Spares copying an export that is still being uploaded."""
    missing = set(read_notes(folder)[1].files) - set(folders.walk(folder))
    if missing:
        raise MillraceError(f"{storage.join(folder, min(missing))}: missing, but {NOTES_PATH} names it")
