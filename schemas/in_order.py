"""Work in threads, its results taken in order."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


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
