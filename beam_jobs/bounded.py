"""Work in threads within bounds: so many bytes at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Budget:
    """Bytes that may be in use at once. What is larger than all of it goes alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def holding(self, amount: int) -> Iterator[None]:
        """Waits until there is room, and keeps it for its block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + amount <= self._limit)
            self._used += amount
        try:
            yield
        finally:
            with self._changed:
                self._used -= amount
                self._changed.notify_all()
