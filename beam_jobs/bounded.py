"""Work in threads within bounds: so many bytes at once, so many results waiting."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


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


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[A], B], items: Iterable[A], *, waiting_at_most: int
) -> Iterator[B]:
    """function(item) for each item, in order, with so many at most begun or waiting to be taken."""
    waiting: collections.deque[Future[B]] = collections.deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= waiting_at_most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
