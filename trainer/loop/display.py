"""Progress: a line that is updated in place on a terminal, or a new line now and then elsewhere; and lines that stay.

Importing this imports no TensorFlow.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

TERMINAL_SECS = 0.5
LOG_SECS = 10.0


class Display:
    """Writes progress: a status line that the next one replaces, and permanent lines. `quiet` writes nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._stream = sys.stderr
        self._quiet = quiet
        self.is_terminal = self._stream.isatty()
        self._open = False

    def update(self, text: str) -> None:
        """Replaces the status line on a terminal; elsewhere writes another line."""
        if self.is_terminal:
            self._write(f"\r{text}\x1b[K")
            self._open = True
        else:
            self._write(f"{text}\n")

    def line(self, text: str) -> None:
        """Writes a permanent line."""
        self._write(f"\r{text}\x1b[K\n" if self._open else f"{text}\n")
        self._open = False

    def close(self) -> None:
        """Ends the status line."""
        if self._open:
            self._write("\n")
            self._open = False

    def _write(self, text: str) -> None:
        if self._quiet:
            return
        self._stream.write(text)
        self._stream.flush()


def rate_limited(display: Display) -> Callable[[str], None]:
    """A function that updates a display: always on a terminal, elsewhere at most every `LOG_SECS`."""
    last = -LOG_SECS

    def update(text: str) -> None:
        nonlocal last
        if display.is_terminal or time.monotonic() - last >= LOG_SECS:
            last = time.monotonic()
            display.update(text)

    return update
