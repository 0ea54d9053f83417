"""Work ahead: the next item is made in a thread while the present one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(items: Iterator[T], *, ahead: int = 1) -> Generator[T, None, None]:
    """Yields what `items` yields, in order, making up to `ahead` items in advance; its exceptions are raised here.

    A caller that stops early (closes the generator) stops the thread as well.
    """
    ready: queue.Queue[object] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()

    def put(item: object) -> None:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def work() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
