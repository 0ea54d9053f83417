"""How long requests to a store and to Google's services are repeated, and what cuts the repetition short.

Each request is repeated for up to RETRY_SECONDS by the `Retry` of Google's own libraries. A command that has failed, or
that Ctrl-C ends, still has to clean up: then each request is made once, and waited for only a few seconds, so that a
server that does not answer does not hold the command for minutes.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

RETRY_SECONDS = 120.0  # how long a request is repeated
STALL_SECONDS = 60.0  # how long a connection, or the next bytes of an answer, may take
ENDING_SECONDS = 5.0  # the same, while the command ends
NOTE_SECONDS = 10.0  # after which a request that is still repeated is mentioned
_LONGEST_DELAY = 1 / 40  # between two tries, as a part of RETRY_SECONDS

# Whether the command ends. It belongs to the process, since threads that wait for a server are to stop, too.
_ending = threading.Event()


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """In the block, by which a failed or interrupted command cleans up, no request is repeated, in any thread."""
    was_ending = _ending.is_set()
    _ending.set()
    try:
        yield
    finally:
        if not was_ending:
            _ending.clear()


@contextlib.contextmanager
def cut_short_by_ctrl_c() -> Iterator[None]:
    """From Ctrl-C in the block, which a command is, until its end, no request is repeated."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def end_requests_first(number: int, frame: types.FrameType | None) -> None:
        _ending.set()
        before(number, frame)

    signal.signal(signal.SIGINT, end_requests_first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _ending.clear()


def stall_seconds() -> float:
    """How many seconds a connection, or the next bytes of an answer, may take now."""
    return ENDING_SECONDS if _ending.is_set() else STALL_SECONDS


def storage_retry(path: str, describe: Callable[[BaseException], str]) -> Callable[[Callable[..., Any]], Any]:
    """How a request to Google Cloud Storage is repeated after 429, 5xx and broken connections.

    By default, the client repeats only requests that name the generation that they expect. Each of ours may be
    repeated: it reads, writes a complete object, or removes one.

    Args:
      path: what is asked for, to be named in the note that the request is still repeated.
      describe: describes the failure of a single try.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    longest = RETRY_SECONDS * _LONGEST_DELAY
    retry = DEFAULT_RETRY.with_timeout(RETRY_SECONDS).with_delay(initial=min(1.0, longest), maximum=longest)

    def repeated(request: Callable[..., Any]) -> Any:
        begun, noted = time.monotonic(), False

        def after_failure(error: Exception) -> None:
            nonlocal noted
            if _ending.is_set():
                raise error
            seconds = time.monotonic() - begun
            if seconds >= NOTE_SECONDS and not noted:
                noted = True
                print(
                    f"{path}: Google Cloud Storage has failed for {seconds:.0f} s ({describe(error)}); asking again, "
                    f"for up to {RETRY_SECONDS:g} s",
                    file=sys.stderr,
                    flush=True,
                )

        return retry(request, on_error=after_failure)

    return repeated


def service_retry(seconds: float) -> dict[str, Any]:
    """The arguments of a request to a job service of Google, which repeat it while the service is busy or not reached.

    Args:
      seconds: until the service must have answered, repeated requests included.
    """
    from google.api_core.retry import Retry

    return {"retry": Retry(initial=0.5, maximum=8.0, timeout=seconds / 2), "timeout": seconds / 4}
