"""How long a store that fails is asked again: one clock for all requests of a process, in all of its threads.

A command makes many requests, one after another and at once, and cleans up by further ones. If each were repeated for
as long as one may be, a server that fails would hold the command for minutes on end. So the seconds are counted from
the first failure that no success has followed. When they are over, each further request is made once, and waited for no
longer than a moment. What a failed or interrupted command asks for while it cleans up has only a few seconds.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

RETRY_SECONDS = 120.0  # from the first failure on
STALL_SECONDS = 60.0  # how long a connection, or the next bytes of an answer, may take
LEAVING_SECONDS = 5.0  # for all repeated requests of a clean-up together
FORGOTTEN_SECONDS = 30.0  # after a failure, without another one: the next one begins to count again
_DELAYS = 40.0  # the longest delay between two tries is this part of RETRY_SECONDS; so is the end of the last one
SAY_AFTER, SAY_EVERY = 10.0, 30.0

_process = types.SimpleNamespace(leaving_until=math.inf)
_thread = threading.local()


class GaveUp(Exception):
    """A request was repeated for as long as it may be. The message is for a person, without the path."""


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """In the block, by which a failed or interrupted process cleans up, failures are waited for only for seconds."""
    before = _process.leaving_until
    leave()
    try:
        yield
    finally:
        stay(before)


def leave() -> None:
    """From now on, requests of this process are repeated for LEAVING_SECONDS at most, those under way among them."""
    _process.leaving_until = min(_process.leaving_until, time.monotonic() + LEAVING_SECONDS)


def stay(until: float = math.inf) -> None:
    """Ends what `leave` began."""
    _process.leaving_until = until


@contextlib.contextmanager
def left_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C in the block, which a command is, has `leave` called first: threads that ask a store are waited for."""
    stay()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def leave_first(number: int, frame: types.FrameType | None) -> None:
        leave()
        before(number, frame)

    signal.signal(signal.SIGINT, leave_first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def tried_once() -> Iterator[None]:
    """Requests of this thread in the block are made once, and waited for LEAVING_SECONDS: others will follow them."""
    _thread.once = True
    try:
        yield
    finally:
        _thread.once = False


def is_outage(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is that a store was asked in vain."""
    seen: list[BaseException] = []  # an error may have been raised from itself
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__
    return any(isinstance(error, GaveUp) for error in seen)


def longest_delay() -> float:
    """Seconds between two tries of a request, at most."""
    return RETRY_SECONDS / _DELAYS


def asked_again(seconds: float) -> dict[str, Any]:
    """The arguments of a request to a job service of Google, which repeat it while the service is busy or not reached.

    Args:
      seconds: until the service must have answered, repeated requests included.
    """
    from google.api_core.retry import Retry

    return {"retry": Retry(initial=0.5, maximum=8.0, timeout=seconds / 2), "timeout": seconds / 4}


class Outage:
    """Since when a store has failed, if it does. Thread-safe."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._since: float | None = None  # the beginning of the first request that failed, if none succeeded after it
        self._latest = -math.inf  # the latest failure
        self._said = -math.inf

    def wait(self) -> float:
        """How many seconds a connection, or the next bytes of an answer, may take now."""
        now, once = time.monotonic(), getattr(_thread, "once", False)
        left = min(_process.leaving_until - now, LEAVING_SECONDS if once else STALL_SECONDS)
        if self._since is not None:
            left = min(left, max(self._since + RETRY_SECONDS - now, LEAVING_SECONDS))
        return min(STALL_SECONDS, max(left, 1.0))

    def answered(self) -> None:
        """A request has succeeded."""
        self._since = None

    def failed(self, path: str, failure: str, begun: float) -> None:
        """A request has failed in a way that may pass; says so now and then.

        Args:
          path: what was asked for.
          failure: what happened, for a person.
          begun: when the request was first made, by the monotonic clock.

        Raises:
          GaveUp: it is not to be repeated.
        """
        now = time.monotonic()
        with self._lock:
            if self._since is None or now - self._latest > FORGOTTEN_SECONDS:
                self._since = begun
            self._latest, begun = now, min(begun, self._since)
            say = now - begun >= SAY_AFTER and now - self._said >= SAY_EVERY
            self._said = now if say else self._said
        until, seconds = begun + RETRY_SECONDS, RETRY_SECONDS
        if _process.leaving_until < until:
            until, seconds = _process.leaving_until, LEAVING_SECONDS
        if getattr(_thread, "once", False) or now + longest_delay() >= until:
            raise GaveUp(
                f"{self._service} did not do it within {seconds:g} s of retries; the last failure: {failure}. Check "
                "its status and the network, and run the command again"
            )
        if say:
            print(
                f"{path}: {self._service} has failed for {now - begun:.0f} s ({failure}); asking again, for up to "
                f"{seconds:g} s",
                file=sys.stderr,
                flush=True,
            )
