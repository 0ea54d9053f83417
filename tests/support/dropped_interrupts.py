"""Objects that receive a signal where Python or a library drops every exception."""

from __future__ import annotations

import contextlib
import signal


class Interrupted:
    """Receives the signal while it is garbage-collected. Python reports the exception, and drops it."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


class InterruptedAndSilent(Interrupted):
    """The same, but the exception is ignored before Python sees it, as TensorFlow does."""

    def __del__(self) -> None:
        with contextlib.suppress(BaseException):
            super().__del__()
