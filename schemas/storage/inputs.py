"""Checks of the files that a command is given, and notes about them."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Iterable, Sequence

from schemas.errors import UsageError, readable
from schemas.storage import globs
from schemas.storage.paths import is_local, join, store_of


def few(lines: Sequence[str]) -> list[str]:
    """The first five lines, and a count of the rest."""
    return [*lines[:5], *([f"and {len(lines) - 5:,} more"] if len(lines) > 5 else [])]


def print_notes(lines: Sequence[str]) -> None:
    """Prints notes about the input, which are not errors, on standard error."""
    for line in few(lines):
        print(line, file=sys.stderr, flush=True)


def print_duplicates(duplicates: Sequence[tuple[str, str]]) -> None:
    """Prints a note for each file that is named more than once; see `schemas.storage.expand`."""
    print_notes([duplicate_note(kept, path) for kept, path in duplicates])


def is_text(path: str) -> bool:
    """Whether a path is UTF-8, so that a manifest can name it."""
    return path.isascii() or readable(path) == path


def check_names(paths: Iterable[str]) -> None:
    """Refuses a file of rows whose name is not UTF-8: manifests and predictions name it. (Such an image is a reject.)

    Raises:
      UsageError: there is one.
    """
    for path in paths:
        if not is_text(path):
            raise UsageError(
                f"{path}: this file's name is not UTF-8 text (its other bytes are shown as \\x..), so no manifest can "
                "name it. Rename the file, or give a pattern that does not match it; nothing was done."
            )


def check_apart(patterns: Sequence[str], output: str, *, inside: Sequence[str] = (), flag: str = "--output") -> None:
    """Refuses an output that a pattern of the input matches: the next run would read what this one writes.

    Args:
      patterns: paths and globs of the input.
      output: a file; or a folder, if `inside` names some of the files that will be in it.
      inside: examples of these, relative to the folder.
      flag: what names the output, for the message.

    Raises:
      UsageError: a pattern matches.
    """
    for name in [join(output, below) for below in inside] or [output]:
        for pattern in patterns:
            if globs.MAGIC & set(pattern) and globs.matches(_absolute(name), _absolute(pattern)):
                raise UsageError(
                    f"{flag} {output}: lies inside its own input {pattern}, so the next run would read what this one "
                    "writes. Use another place, or a narrower pattern."
                )


def _absolute(path: str) -> str:
    return os.path.realpath(path) if is_local(path) else path


def identity(path: str) -> Hashable:
    """A key that is equal for two paths of one file: device and inode locally, links followed; bucket and name on GCS.

    A file that does not exist is identified by its path.

    Raises:
      UsageError: a folder.
    """
    return store_of(path).identity(path)


def duplicate_note(kept: str, path: str) -> str:
    """The note about a file that is named more than once."""
    if kept == path:
        return f"{path} is named more than once; it is read once"
    return f"{kept} and {path} are the same file; it is read once"
