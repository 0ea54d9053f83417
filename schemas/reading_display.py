"""How far a command has read its files, in one line on a terminal."""

from __future__ import annotations

import sys
import time


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

    def end(self) -> None:
        """Clears the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
