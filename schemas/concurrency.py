"""Finds out how many cores and how much memory this process may use, and divides work among threads."""

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
    """Returns how many cores this process may use.

    The number is limited by the CPU affinity of the process, and by the CPU quota of its control groups: in a
    container, the machine has more cores than the quota allows.

    Args:
      system: the folder that contains `proc` and `sys`; tests give another one than "/".
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _control_groups(system):
        with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
            quota, period = map(int, (group / "cpu.max").read_text().split())
            cores = min(cores, math.ceil(quota / period))
    return max(1, cores)


def available_memory(*, system: str = "/") -> int:
    """Returns how many bytes of memory can still be allocated, on this machine and in this process's control groups.

    Returns `sys.maxsize` on systems that do not say, such as macOS.

    Args:
      system: the folder that contains `proc` and `sys`; tests give another one than "/".
    """
    lines = _lines(Path(system, "proc/meminfo"))
    free_bytes = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for group in _control_groups(system):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            stat = dict(line.split() for line in _lines(group / "memory.stat"))
            # The kernel frees cached pages of files when memory is short, so they count as available.
            cached = int(stat.get("file", 0)) - int(stat.get("shmem", 0))  # `shmem` are files that exist only in memory
            free_bytes.append(limit - used + cached)
    return min(free_bytes, default=sys.maxsize)


def _control_groups(system: str) -> Iterator[Path]:
    """Yields the folders of this process's control group and of the groups above it (control groups of version 2)."""
    mounted = Path(system, "sys/fs/cgroup")
    for line in _lines(Path(system, "proc/self/cgroup")):
        if line.startswith("0::"):
            own = mounted / line.removeprefix("0::").strip("/")
            yield own  # in a container, the path may be that of the host: then only the topmost folder exists
            yield from own.parents[: len(own.parts) - len(mounted.parts)]


def _lines(path: Path) -> list[str]:
    """Returns the lines of a file; empty if the file cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []


def prefetch(items: Iterator[A]) -> Generator[A, None, None]:
    """Yields the same items in the same order. A background thread makes the next item while the caller uses this one.

    An error of `items` is raised here, after the items before it. Closing the generator ends the thread.
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
    """Yields function(item) for each item, in order, computed by the threads of a pool.

    Args:
      pool: the threads.
      function: what is computed for an item.
      items: the items. The caller's thread iterates over them, a few items ahead of the results.
      max_pending: the largest number of results that are being computed or wait to be taken.
    """
    pending: collections.deque[Future[B]] = collections.deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            # Wait for the oldest result, so that results come in order and no more than `max_pending` exist.
            if len(pending) >= max_pending:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def in_threads(function: Callable[[A], B], items: Iterable[A], *, threads: int) -> list[B]:
    """Returns function(item) for each item, in order, computed in several threads.

    Each call has a copy of the caller's context variables. If a call raises an error, items that are not begun by then
    are skipped, and the error is raised.

    Args:
      function: what is computed for an item.
      items: the items.
      threads: the largest number of threads; 1 computes in the caller's thread.
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
    """Yields each item only after the next item was taken from `items`.

    If the items are futures of a pool, the pool then works on the next item while the caller waits for this one. An
    error of `items` is raised after all items before it were yielded.
    """
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
    """Limits how many bytes several threads use at the same time.

    A request larger than the limit waits until it runs alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Waits until `amount` bytes are free, and reserves them for the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + amount <= self._limit)
            self._used += amount
        try:
            yield
        finally:
            with self._changed:
                self._used -= amount
                self._changed.notify_all()
