"""Exports in a bucket, copied to local disk: so what is checked is what is loaded, even if the bucket changes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from schemas import storage
from schemas.errors import MillraceError
from schemas.exports.notes import NOTES_PATH, read_notes
from schemas.storage import folders


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
