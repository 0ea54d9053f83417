"""Compare and swap: replaces or removes a file only if it has not changed since it was read.

Of two swaps that begin from the same `look`, one fails, however long a process is stopped between any two of its steps.
Each store does this in its own way: see `schemas.storage.local_swap` and `schemas.storage.gcs`.
"""

from __future__ import annotations

from schemas.storage.paths import store_of, wrap_errors
from schemas.storage.store import Changed, Seen

__all__ = ["Changed", "Seen", "create", "fence", "look", "swap"]


def look(path: str) -> Seen:
    """The file's current bytes, and what a swap compares with."""
    with wrap_errors(path):
        return store_of(path).look(path)


def swap(path: str, data: bytes | None, seen: Seen, *, unless: tuple[str, Seen] | None = None) -> Seen:
    """Replaces or removes the file, if it is still as it was `seen`.

    Args:
      path: the file.
      data: its new bytes; None removes it.
      seen: what `look`, or the swap before, returned.
      unless: another file, and how it was seen: if it has changed since, nothing is done. A process that changes that
        file calls `fence` for this one before it looks at it; a swap that has already compared both is then complete
        or fails.

    Returns:
      The file as it is now, for the next swap.

    Raises:
      Changed: one of the two files has changed; nothing was done.
      MillraceError: the file cannot be written.
    """
    with wrap_errors(path):
        return store_of(path).swap(path, data, seen, unless)


def create(path: str, data: bytes) -> bool:
    """Writes a file unless there is one. Returns whether it was written."""
    try:
        swap(path, data, Seen(None))
    except Changed:
        return False
    return True


def fence(path: str) -> None:
    """Makes every swap fail that has compared already and is not complete; it must compare again."""
    with wrap_errors(path):
        store_of(path).fence(path)
