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


def how_ended(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """The word for it, and the exit code: 128 and the signal's number, as shells have it."""
    return ("terminated", 143) if isinstance(interrupt, Terminated) else ("interrupted", 130)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """In its block SIGTERM raises `Terminated`, and neither it nor Ctrl-C gets lost.

    Python drops an exception that is raised while an object is collected or a weak reference dies, and TensorFlow has
    many of these: the signal is then sent again. And code in C may make another error of it, such as a SystemError:
    whatever error leaves the block after a signal is its aftermath, and the signal's exception is raised from it.
    Elsewhere than in the main thread this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[type[KeyboardInterrupt]] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        raise received[-1]

    def not_lost(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)
            return
        number = signal.SIGTERM if issubclass(dropped.exc_type, Terminated) else signal.SIGINT
        threading.Timer(_AGAIN_SECS, os.kill, (os.getpid(), number)).start()  # at once, it would be dropped again

    hook, handlers = sys.unraisablehook, {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background may ignore it
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, end)
    sys.unraisablehook = not_lost
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
