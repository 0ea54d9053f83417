"""Which files paths and globs name: each file once, however often it is named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence

from schemas.errors import UsageError
from schemas.storage.paths import check_scheme, store_of
from schemas.storage.store import wrap_errors

_MAGIC = frozenset("*?[")


def few(lines: Sequence[str]) -> list[str]:
    """Five at most, and how many more there are."""
    return [*lines[:5], *([f"and {len(lines) - 5:,} more"] if len(lines) > 5 else [])]


def say(lines: Sequence[str]) -> None:
    """Tells a user what is worth knowing and no error, on standard error."""
    for line in few(lines):
        print(line, file=sys.stderr, flush=True)


def say_once(again: Sequence[tuple[str, str]]) -> None:
    """Tells of files that are named more than once; see `expand`."""
    say([told_once(kept, path) for kept, path in again])


def expand(patterns: Sequence[str], *, again: Callable[[Sequence[tuple[str, str]]], None] = say_once) -> list[str]:
    """The files that paths and globs name: sorted, each file once, under the path that was given first.

    Args:
      patterns: paths and globs.
      again: is called where files are named more than once, with the path that each is read under, and the other one.

    Raises:
      UsageError: a path that does not exist, a glob that matches no file, or no pattern at all.
    """
    if not patterns:
        raise UsageError("no input: give at least one file or glob pattern")
    first: dict[Hashable, str] = {}
    twice: dict[tuple[str, str], None] = {}
    for pattern in patterns:
        check_scheme(pattern)
        with wrap_errors(pattern):
            matches = store_of(pattern).matches(pattern)
        if not matches and not _MAGIC & set(pattern):
            raise UsageError(f"{pattern}: no such file")
        if not matches:
            raise UsageError(f"{pattern}: no file matches this pattern")
        for path in sorted(matches):
            key = identity(path)
            if key in first:
                twice[first[key], path] = None
            else:
                first[key] = path
    if twice:
        again(list(twice))
    return sorted(first.values())


def identity(path: str) -> Hashable:
    """What two paths of one file share: of a local file device and inode, links followed; on GCS bucket and name.

    A file that is not there has its path's.

    Raises:
      UsageError: a folder.
    """
    return store_of(path).identity(path)


def told_once(kept: str, path: str) -> str:
    """What is said of a file that is named again."""
    if kept == path:
        return f"{path} is named more than once; it is read once"
    return f"{kept} and {path} are the same file; it is read once"
