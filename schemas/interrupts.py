"""Makes Ctrl-C and SIGTERM end a command reliably, even when a library drops the exception that the signal raised.

Python drops an exception that is raised while an object is garbage-collected, and TensorFlow drops one that is raised
while a traced function is destroyed. Both happen often while graphs are built. So the handler of a signal also
remembers it, and each step of a command's work calls `check`, which raises the exception again.
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
    """A signal ended the command. `exit_code` is 128 plus the signal's number, as in shells."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def how_ended(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """Returns how a signal ended the command: a word for the message, and the exit code.

    The word is "interrupted" or "terminated". The exit code is 128 plus the signal's number, as in shells.
    """
    return ("terminated", 143) if isinstance(interrupt, Terminated) else ("interrupted", 130)


class _Handler:
    """The handler of signals in a block of `interruptible`: raises KeyboardInterrupt, and remembers that it did.

    Args:
      on_ctrl_c: the handler of Ctrl-C that was set before the block. If the block is inside another such block, this is
        also a `_Handler`, and both remember signals in the same list.
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
    """Returns the signals that were received in the innermost block of `interruptible`; empty outside such a block."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if isinstance(handler := signal.getsignal(number), _Handler):
            return handler.received
    return []


def is_interrupted() -> bool:
    """Returns whether a signal was received in the block of `interruptible`.

    Threads that the block waits for call this.
    """
    return bool(_received())


def check() -> None:
    """Raises the exception of a signal again, if one was received in the block of `interruptible`.

    Only in the main thread.
    """
    if threading.current_thread() is threading.main_thread() and (received := _received()):
        raise received[-1]


def handled() -> None:
    """Forgets the received signals. Call it after catching a signal's exception, if the work goes on."""
    _received().clear()


@contextlib.contextmanager
def interruptible(*, sigterm: bool = False) -> Iterator[None]:
    """Remembers signals in the block, so that `check` can raise an exception that a library dropped.

    If an error leaves the block after a signal, the signal's exception is raised from it: C code may have turned that
    exception into another one, such as a SystemError. If blocks are nested, and a signal's exception was dropped in the
    inner block, the outer block can still raise it.

    Does nothing outside the main thread. If Ctrl-C is ignored, as in background jobs of a shell, it stays ignored.

    Args:
      sigterm: whether SIGTERM raises `Terminated`, so that temporary files are removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    check()  # raises a signal's exception that was dropped before, for example by an import
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
    """Delays signals that come in the block until its end, for a few seconds' work that must not be left half done.

    Delays Ctrl-C and SIGTERM, if their handlers are functions of Python. Does nothing outside the main thread.
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
