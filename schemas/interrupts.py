"""Ctrl-C and SIGTERM that do not get lost.

Python drops an exception that is raised while an object is collected, or in a weak reference's callback. TensorFlow
ignores any that is raised while a traced function is destroyed, which happens again and again as graphs are built. The
work would go on as if nobody had interrupted it. So the signal is remembered, and `check`, which every step of the work
calls, raises the exception again. If Python reports that it dropped the exception, the signal is sent again at once,
since the next step may be far off.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from schemas.errors import MillraceError

_RESEND_SECS = 0.05  # without this delay, Python would drop the exception again

_blocks: list[Callable[[int, FrameType | None], None]] = []  # the handlers of the blocks of `interruptible`
_received: list[type[KeyboardInterrupt]] = []  # in these blocks, and no exception has left one of them since
_resends: list[threading.Timer] = []
_resending = threading.Lock()


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. Clusters send it before they kill a process."""


class Interrupted(MillraceError):
    """A signal ended the command. `exit_code` is 128 and the signal's number, as shells have it."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def how_ended(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """A word for the message, and the exit code: 128 plus the signal's number, as in shells."""
    return ("terminated", 143) if isinstance(interrupt, Terminated) else ("interrupted", 130)


def check() -> None:
    """Raises the exception of a signal that was received in the block of `interruptible`, if there was one."""
    if _received and threading.current_thread() is threading.main_thread():
        _cancel_resends()
        raise _received[-1]


def handled() -> None:
    """Says that the exception was caught, and the work goes on: `check` does not raise it again."""
    _received.clear()


@contextlib.contextmanager
def interruptible(*, sigterm: bool = False) -> Iterator[None]:
    """In the `with` block, `check` raises an interrupt that was dropped, and an error after a signal is an interrupt.

    C code may turn the exception into another one, such as a SystemError: if any error leaves the block after a signal,
    the signal's exception is raised from it. A block within another one begins with `check`, and what nothing has
    raised when it ends is the other's to raise. Ctrl-C is passed to the handler that was there before; it is remembered
    if that handler raises KeyboardInterrupt. Outside the main thread, this does nothing; where Ctrl-C is ignored, as in
    a shell's background jobs, it stays ignored.

    Args:
      sigterm: SIGTERM raises `Terminated`, so that temporary files are removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hook, before = sys.unraisablehook, {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    on_ctrl_c = before[signal.SIGINT]

    def remember(number: int, frame: FrameType | None) -> None:
        if _is_within(frame, report.__code__):  # Python would drop this exception, too
            _resend(number)
            return
        try:
            if number == signal.SIGTERM:
                raise Terminated
            if callable(on_ctrl_c):
                on_ctrl_c(number, frame)
        except KeyboardInterrupt as interrupt:
            _received.append(type(interrupt))
            raise

    def report(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)
            return
        _resend(signal.SIGTERM if issubclass(dropped.exc_type, Terminated) else signal.SIGINT)

    check()  # of the block around this one; the imports before this, for one, may have dropped it
    replaced = [*([signal.SIGINT] if callable(on_ctrl_c) else []), *([signal.SIGTERM] if sigterm else [])]
    for number in replaced:
        signal.signal(number, remember)
    sys.unraisablehook = report
    _blocks.append(remember)
    left = True
    try:
        yield
        left = False
    except BaseException as error:
        received = _received[-1:]
        _received.clear()
        if received and isinstance(error, Exception) and not isinstance(error, Interrupted):
            raise received[0] from error
        raise
    finally:
        _blocks.remove(remember)
        try:
            if left or not _blocks:
                _cancel_resends()
        finally:
            sys.unraisablehook = hook
            for number in replaced:
                signal.signal(number, before[number])
            if not _blocks:
                _received.clear()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals in the `with` block, a few seconds' work that must not be left half done, take effect at its end.

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


def _is_within(frame: FrameType | None, function: CodeType) -> bool:
    """Whether a frame is of a function, or of what it has called."""
    while frame is not None and frame.f_code is not function:
        frame = frame.f_back
    return frame is not None


def _resend(number: int) -> None:
    def send() -> None:
        with _resending:
            if timer in _resends:
                os.kill(os.getpid(), number)

    timer = threading.Timer(_RESEND_SECS, send)
    timer.daemon = True
    _resends.append(timer)
    timer.start()


def _cancel_resends() -> None:
    with _resending:
        while _resends:
            _resends.pop().cancel()
