"""SIGTERM, which clusters send before they kill, ends a training as Ctrl-C does: temporary files are removed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_AGAIN_SECS = 0.05


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """In its block SIGTERM raises `Terminated`, and neither it nor Ctrl-C gets lost.

    Python drops an exception that is raised while an object is collected or a weak reference dies, and TensorFlow has
    many of these: the signal is then sent again. Elsewhere than in the main thread this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, hook = signal.signal(signal.SIGTERM, _terminate), sys.unraisablehook

    def not_lost(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)
            return
        number = signal.SIGTERM if issubclass(dropped.exc_type, Terminated) else signal.SIGINT
        threading.Timer(_AGAIN_SECS, os.kill, (os.getpid(), number)).start()  # at once, it would be dropped again

    sys.unraisablehook = not_lost
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
