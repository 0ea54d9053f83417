"""Prints for people: a status line that is updated, lines that stay, and tables with aligned columns."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Self

# Seconds between two statuses, on a terminal and in a log.
TERMINAL_SECS = 0.5
LOG_SECS = 10.0


class Display:
    """Writes to standard error: a status line, which each new status overwrites, and permanent lines.

    Leaving the `with` block clears the status line. If standard error is not a terminal, each status is a line of its
    own.

    Args:
      quiet: whether to write nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._stream, self._quiet, self._open = sys.stderr, quiet, False
        self.is_terminal = self._stream.isatty()

    @property
    def every(self) -> float:
        """The number of seconds that should lie between two statuses."""
        return TERMINAL_SECS if self.is_terminal else LOG_SECS

    def update(self, text: str) -> None:
        """Overwrites the status line on a terminal. Elsewhere writes another line."""
        self._write(f"\r\x1b[K{text}" if self.is_terminal else f"{text}\n")
        self._open = self.is_terminal

    def line(self, text: str) -> None:
        """Writes a permanent line."""
        self._write(f"\r\x1b[K{text}\n" if self._open else f"{text}\n")
        self._open = False

    def close(self, end: str = "\n") -> None:
        """Ends the status line, so that the text stays and the next output begins on a new line."""
        if self._open:
            self._write(end)
        self._open = False

    def _write(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text)
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close("\r\x1b[K")


def rate_limited(display: Display) -> Callable[[str], None]:
    """Returns a function that shows a text on a display, and limits how many lines this makes in a log.

    On a terminal, every text is shown. In a log, a text with figures, such as `1,200 steps`, is shown at most every
    LOG_SECS seconds, and a text without figures only once.
    """
    last, messages = -LOG_SECS, set[str]()

    def update(text: str) -> None:
        nonlocal last
        due = time.monotonic() - last >= LOG_SECS if any(map(str.isdigit, text)) else text not in messages
        if display.is_terminal or due:
            last = time.monotonic()
            messages.add(text)
            display.update(text)

    return update


class ReadingDisplay(Display):
    """Shows how much has been read, such as `reading: 42 %, 1,200 records`.

    Shows nothing if standard error is no terminal.

    Calling the object with the number of records and the share (0 to 1, or None if unknown) updates the line.

    Args:
      quiet: whether to show nothing anywhere.
      what: what is counted, such as "records".
      doing: what is done to them, such as "verifying".
    """

    def __init__(self, *, quiet: bool, what: str, doing: str = "reading") -> None:
        super().__init__(quiet=quiet or not sys.stderr.isatty())
        self._what, self._doing, self._next = what, doing, 0.0
        self.update(f"{doing} {what} ...")

    def __call__(self, done: int, share: float | None) -> None:
        # At most five updates a second: more would slow the reading down.
        if time.monotonic() >= self._next:
            part = f"{100 * min(share, 1):.0f} %, " if share is not None else ""
            self.update(f"{self._doing}: {part}{done:,} {self._what}")
            self._next = time.monotonic() + 0.2


def readable(value: float, digits: int = 6) -> str:
    """Returns a number as text with a limited number of digits; a large one in whole units instead of with an exponent.

    >>> readable(0.123456789), readable(1961.25), readable(1343276.0)
    ('0.123457', '1961.25', '1,343,276')
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.{digits}g}"


def table(
    header: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, left: int = 1, last_left: bool = False
) -> Iterator[str]:
    """Yields the lines of a table with aligned columns.

    Args:
      header: the name of each column.
      rows: the cells of each row, in the order of the columns.
      left: the number of columns, from the first on, that are left-aligned. The others are right-aligned.
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
    """Returns the width of a text in columns of a terminal.

    East Asian characters take two columns, and combining characters take zero.
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
