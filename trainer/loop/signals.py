"""Handles SIGTERM, which clusters send before they kill a process, like Ctrl-C, so that temporary files are removed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_RESEND_SECS = 0.05


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


def how_ended(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """A word for the message, and the exit code: 128 plus the signal's number, as in shells."""
    return ("terminated", 143) if isinstance(interrupt, Terminated) else ("interrupted", 130)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM raise `Terminated` in the `with` block, and ensures that neither it nor Ctrl-C is lost.

    Python drops exceptions that are raised in `__del__` or in a weak reference's callback, and TensorFlow has many of
    these: the signal is then sent again. C code may turn the exception into another one, such as a SystemError: if any
    error leaves the block after a signal, the signal's exception is raised from it. Outside the main thread, this does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[type[KeyboardInterrupt]] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        raise received[-1]

    def resend(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)
            return
        number = signal.SIGTERM if issubclass(dropped.exc_type, Terminated) else signal.SIGINT
        threading.Timer(_RESEND_SECS, os.kill, (os.getpid(), number)).start()  # delayed, or it would be dropped again

    hook, handlers = sys.unraisablehook, {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job may ignore SIGINT
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, end)
    sys.unraisablehook = resend
    try:
        yield
    except Exception as error:
        if received:
            raise received[-1] from error
        raise
    finally:
        sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)
