"""Ctrl-C that does not get lost.

Python drops an exception that is raised while an object is collected, and TensorFlow ignores any that is raised while a
traced function is taken apart, which tf.Transform has it do again and again as it builds and writes its graphs. A job
would go on to its end as if nobody had interrupted it. So a signal is remembered, and `check` raises it once more.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_received = threading.Event()


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """In its block `check` raises an interrupt that was dropped. An error that follows an interrupt is its aftermath.

    The signal goes to the handler that was there; what counts is whether that one raises KeyboardInterrupt. Elsewhere
    than in the main thread, or where the signal is ignored, this changes nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except KeyboardInterrupt:
            _received.set()
            raise

    _received.clear()
    signal.signal(signal.SIGINT, remember)
    try:
        yield
    except Exception as error:
        if _received.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
        _received.clear()


def check() -> None:
    """Raises KeyboardInterrupt if there was one in the block of `remembered`. Every step of ours calls this."""
    if _received.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
