"""Work in threads: one item ahead, many items in order, and no more bytes at once than a budget allows."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def prefetch(items: Iterator[A]) -> Generator[A, None, None]:
    """Yields the same items in order, each made in a background thread while the one before it is used.

    What `items` raises is raised here, after the items before it. Closing the generator ends the thread.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        end = object()
        pending = pool.submit(next, items, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


def map_in_order(
    pool: ThreadPoolExecutor, function: Callable[[A], B], items: Iterable[A], *, max_pending: int
) -> Iterator[B]:
    """Yields function(item) for each item, in order.

    Args:
      pool: whose threads call the function.
      function: what is done to an item.
      items: taken from in the caller's thread, as results are.
      max_pending: how many results are being computed, or wait to be taken, at most.
    """
    pending: collections.deque[Future[B]] = collections.deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= max_pending:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def in_threads(function: Callable[[A], B], items: Iterable[A], *, threads: int) -> list[B]:
    """function(item) for each item, in order. The first error is raised; items that were not begun by then are left."""
    items = list(items)
    if min(len(items), threads) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        pending = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in pending]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def one_behind(items: Iterator[A]) -> Iterator[A]:
    """Yields each item once the next one has been taken, so that a pool has work on both; errors come last."""
    held: list[A] = []
    failure: Exception | None = None
    try:
        for item in items:
            yield from held
            held = [item]
    except Exception as error:
        failure = error
    yield from held
    if failure is not None:
        raise failure


class ByteBudget:
    """Limits how many bytes are in use at once. An oversized request runs exclusively."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Waits until `amount` bytes are free, and holds them for its block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + amount <= self._limit)
            self._used += amount
        try:
            yield
        finally:
            with self._changed:
                self._used -= amount
                self._changed.notify_all()
