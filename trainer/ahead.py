"""Work done ahead in threads, in order, so that one thing is made while another is used."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next one made in a thread while one is used."""
    with ThreadPoolExecutor(1) as pool:
        end = object()
        pending = pool.submit(next, items, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


def mapped_ahead(work: Callable[[S], T], items: Iterable[S], *, threads: int, waiting: int) -> Iterator[T]:
    """`map(work, items)` in threads, with at most `waiting` results begun and not yet taken."""
    begun: collections.deque[Future[T]] = collections.deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) >= waiting:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
