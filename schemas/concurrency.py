"""Tells how many cores and how much memory there are, and divides work among threads within such limits."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import math
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def usable_cores(*, system: str = "/") -> int:
    """Returns how many cores this process may use: by its affinity, and by the CPU time of its control groups.

    Args:
      system: the folder in which `proc` and `sys` are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _control_groups(system):
        with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
            quota, period = map(int, (group / "cpu.max").read_text().split())
            cores = min(cores, math.ceil(quota / period))
    return max(1, cores)


def available_memory(*, system: str = "/") -> int:
    """Returns bytes that processes may still take, of this machine and of the control groups that this process is in.

    Where the system does not tell, as macOS, there is no limit.

    Args:
      system: the folder in which `proc` and `sys` are.
    """
    lines = _lines(Path(system, "proc/meminfo"))
    free_bytes = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for group in _control_groups(system):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            stat = dict(line.split() for line in _lines(group / "memory.stat"))
            cached = int(stat.get("file", 0)) - int(stat.get("shmem", 0))  # not what is in a file system of memory
            free_bytes.append(limit - used + cached)
    return min(free_bytes, default=sys.maxsize)


def _control_groups(system: str) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, of version 2."""
    mounted = Path(system, "sys/fs/cgroup")
    for line in _lines(Path(system, "proc/self/cgroup")):
        if line.startswith("0::"):
            own = mounted / line.removeprefix("0::").strip("/")
            yield own  # in a container the path may be that outside of it, so that only the uppermost is there
            yield from own.parents[: len(own.parts) - len(mounted.parts)]


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []


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
    """Returns function(item) for each item, in order; the threads have the caller's context variables.

    The first error is raised; items that were not begun by then are left.
    """
    items = list(items)
    if min(len(items), threads) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        pending = [pool.submit(contextvars.copy_context().run, function, item) for item in items]
        try:
            return [future.result() for future in pending]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def one_behind(items: Iterator[A]) -> Iterator[A]:
    """Yields each item once the next one has been taken, so that a pool has work on both; errors come last."""
    pending: list[A] = []
    failure: Exception | None = None
    try:
        for item in items:
            yield from pending
            pending = [item]
    except Exception as error:
        failure = error
    yield from pending
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
