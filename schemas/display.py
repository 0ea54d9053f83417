"""What commands show on a terminal: how far they have read, in one line, and tables of aligned columns."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator


class ReadingDisplay:
    """The line; nothing is shown where standard error is no terminal.

    Args:
      quiet: whether to show nothing anywhere.
      what: what is counted, such as "records".
      doing: what is done to them.
    """

    def __init__(self, *, quiet: bool, what: str, doing: str = "reading") -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._what, self._doing, self._next = what, doing, 0.0
        if self._shown:
            print(f"{doing} {what} ...", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, share: float | None) -> None:
        if self._shown and time.monotonic() >= self._next:
            part = f"{100 * min(share, 1):.0f} %, " if share is not None else ""
            print(f"\r\x1b[K{self._doing}: {part}{done:,} {self._what}", end="", file=sys.stderr, flush=True)
            self._next = time.monotonic() + 0.2

    def __enter__(self) -> ReadingDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        """Clears the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def table(
    header: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, left: int = 1, last_left: bool = False
) -> Iterator[str]:
    """The lines of a table.

    Args:
      header: a name for each column.
      rows: their cells.
      left: the first so many columns are left-aligned, the others right-aligned.
      last_left: whether the last column is left-aligned, too.
    """
    cells = [header, *rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    lefts = {*range(left), *((len(header) - 1,) if last_left else ())}
    for row in cells:
        padded = (
            cell + " " * (width - _width(cell)) if i in lefts else " " * (width - _width(cell)) + cell
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """In columns of a terminal: East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
