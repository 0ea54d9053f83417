"""Makes sure that Ctrl-C and SIGTERM end a command, though libraries drop the exception that a signal raises.

Python drops an exception that is raised while an object is collected, TensorFlow one that is raised while a traced
function is destroyed, and both happen again and again as graphs are built. So a signal is remembered, too, and each
step of the work calls `check`, which raises it again.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from schemas.errors import MillraceError


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. Clusters send it before they kill a process."""


class Interrupted(MillraceError):
    """A signal ended the command. `exit_code` is 128 and the signal's number, as shells have it."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def how_ended(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """Returns a word for the message, and the exit code: 128 plus the signal's number, as in shells."""
    return ("terminated", 143) if isinstance(interrupt, Terminated) else ("interrupted", 130)


class _Handler:
    """Handles the signals of a block of `interruptible`: raises KeyboardInterrupt, and remembers it.

    Args:
      on_ctrl_c: the handler of Ctrl-C around the block. Blocks within blocks remember in the same list.
    """

    def __init__(self, on_ctrl_c: Any) -> None:
        self.on_ctrl_c = on_ctrl_c
        self.received: list[type[KeyboardInterrupt]] = getattr(on_ctrl_c, "received", [])

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            if number == signal.SIGTERM:
                raise Terminated
            self.on_ctrl_c(number, frame)
        except KeyboardInterrupt as interrupt:
            self.received.append(type(interrupt))
            raise


def _received() -> list[type[KeyboardInterrupt]]:
    """The signals that the innermost block remembers; empty without a block."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if isinstance(handler := signal.getsignal(number), _Handler):
            return handler.received
    return []


def is_interrupted() -> bool:
    """Returns whether a signal was received in the block of `interruptible`, for threads that the block waits for."""
    return bool(_received())


def check() -> None:
    """Raises the exception of a signal that was received in the block of `interruptible`, if there was one."""
    if threading.current_thread() is threading.main_thread() and (received := _received()):
        raise received[-1]


def handled() -> None:
    """Forgets the signal: its exception was caught, and the work goes on."""
    _received().clear()


@contextlib.contextmanager
def interruptible(*, sigterm: bool = False) -> Iterator[None]:
    """Lets `check` raise what was dropped in the block, and makes an error after a signal an interrupt.

    C code may turn the exception into another one, such as a SystemError: if any error leaves the block after a signal,
    the signal's exception is raised from it. What nothing has raised when a block within another one ends is the outer
    one's to raise. Outside the main thread, this does nothing; where Ctrl-C is ignored, as in a shell's background
    jobs, it stays ignored.

    Args:
      sigterm: SIGTERM raises `Terminated`, so that temporary files are removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    check()  # of the block around this one; the imports before this, for one, may have dropped it
    handler = _Handler(signal.getsignal(signal.SIGINT))
    numbers = [*([signal.SIGINT] if callable(handler.on_ctrl_c) else []), *([signal.SIGTERM] if sigterm else [])]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    except BaseException as error:
        received = handler.received[-1:]
        handler.received.clear()
        if received and isinstance(error, Exception) and not isinstance(error, Interrupted):
            raise received[0] from error
        raise
    finally:
        for number, outer in before.items():
            signal.signal(number, outer)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers signals in the block, a few seconds' work that must not be left half done, until its end.

    They are Ctrl-C and SIGTERM, where they have a handler of Python.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    waiting: list[tuple[int, FrameType | None]] = []
    for number in before:
        signal.signal(number, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            before[signal.Signals(waiting[-1][0])](*waiting[-1])
