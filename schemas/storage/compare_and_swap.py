"""Compare and swap: a file is replaced, or removed, only while it is what it was when it was looked at.

Two jobs that write to one place never both believe that they did: of two swaps that begin with the same look, one
fails, however long a process is stopped between any two of its steps. How, is each store's own: see
`schemas.storage.local_swap` and `schemas.storage.gcs`.
"""

from __future__ import annotations

from schemas.storage.paths import store_of
from schemas.storage.store import Changed, Seen, wrap_errors

__all__ = ["Changed", "Seen", "fence", "look", "swap"]


def look(path: str) -> Seen:
    """The file's present bytes, and what a swap compares with."""
    with wrap_errors(path):
        return store_of(path).look(path)


def swap(path: str, data: bytes | None, seen: Seen, *, unless: tuple[str, Seen] | None = None) -> Seen:
    """Puts a whole file where `seen` was seen, or removes it.

    Args:
      path: the file.
      data: its new bytes; None removes it.
      seen: what `look`, or the swap before, returned.
      unless: another file, and as what it was seen: where it is something else by now, nothing is done. Who changes
        that file calls `fence` for this one before it looks at it, so that a swap which has compared both already
        is done by then or fails.

    Returns:
      The file as it is now, for the next swap.

    Raises:
      Changed: one of the two is not as it was seen; nothing was done.
      MillraceError: the file cannot be written.
    """
    with wrap_errors(path):
        return store_of(path).swap(path, data, seen, unless)


def fence(path: str) -> None:
    """From here on no swap succeeds that compared earlier: it finds out that it has to compare again."""
    with wrap_errors(path):
        store_of(path).fence(path)
