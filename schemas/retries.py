"""How long requests to a bucket and to Google's services are repeated, and what cuts the repetition short.

The `Retry` of Google's own libraries repeats each request for up to RETRY_SECONDS. A command that has failed, or that a
signal ends, still has to clean up: then each request is made once, and waited for only a few seconds, so that a server
that does not answer does not hold the command for minutes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from schemas.interrupts import is_interrupted

RETRY_SECONDS = 120.0  # how long a request is repeated
STALL_SECONDS = 60.0  # how long a connection, or the next bytes of an answer, may take
ENDING_SECONDS = 5.0  # the same, while the command ends
NOTE_SECONDS = 10.0  # after which a note says that a request is still repeated
_LONGEST_DELAY = 1 / 40  # between two tries, as a part of RETRY_SECONDS

_CLEANS_UP: ContextVar[bool] = ContextVar("_CLEANS_UP", default=False)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """In the block, in which a failed command cleans up, each request is made once."""
    before = _CLEANS_UP.set(True)
    try:
        yield
    finally:
        _CLEANS_UP.reset(before)


def _is_ending() -> bool:
    return _CLEANS_UP.get() or is_interrupted()


def storage_request(path: str, describe: Callable[[BaseException], str]) -> dict[str, Any]:
    """Returns the arguments of a request to Google Cloud Storage that repeat it after 429, 5xx and broken connections.

    By default, the client repeats only requests that name the generation that they expect. Each of ours may be
    repeated: it reads, writes a complete object, or removes one.

    Args:
      path: what the request is about, for the note that it is still repeated.
      describe: describes the failure of a single try.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    longest = RETRY_SECONDS * _LONGEST_DELAY
    retry = DEFAULT_RETRY.with_timeout(RETRY_SECONDS).with_delay(initial=min(1.0, longest), maximum=longest)

    def repeated(request: Callable[..., Any]) -> Any:
        begun, noted = time.monotonic(), False

        def after_failure(error: Exception) -> None:
            nonlocal noted
            if _is_ending():
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

    return {"retry": repeated, "timeout": ENDING_SECONDS if _is_ending() else STALL_SECONDS}


def service_request(seconds: float) -> dict[str, Any]:
    """Returns the arguments of a request to a job service of Google that repeat it while the service is busy.

    Args:
      seconds: until the service must have answered, repeated requests included.
    """
    from google.api_core.retry import Retry

    return {"retry": Retry(initial=0.5, maximum=8.0, timeout=seconds / 2), "timeout": seconds / 4}
