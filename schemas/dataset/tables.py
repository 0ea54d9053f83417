"""Tables of aligned columns, for terminals."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator


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
