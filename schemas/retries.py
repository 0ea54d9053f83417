"""Says how long requests to a bucket and to Google's services are repeated, and when they are not repeated.

The `Retry` of Google's own libraries repeats each request for up to RETRY_SECONDS. But a command that has failed, or
that a signal ends, still has to clean up, and should not hang for minutes if the server does not answer. Then each
request is made only once, and waits only a few seconds.
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
STALL_SECONDS = 60.0  # how long connecting may take, and waiting for the next bytes of an answer
ENDING_SECONDS = 5.0  # the same limit, while the command ends
NOTE_SECONDS = 10.0  # when a request has been repeated for so long, a note tells the user
_LONGEST_DELAY = 1 / 40  # the longest delay between two tries, as a fraction of RETRY_SECONDS

_CLEANS_UP: ContextVar[bool] = ContextVar("_CLEANS_UP", default=False)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Makes each request in the block only once. For the clean-up of a command that has failed."""
    before = _CLEANS_UP.set(True)
    try:
        yield
    finally:
        _CLEANS_UP.reset(before)


def _is_ending() -> bool:
    """Returns whether the command is ending, because it failed or because a signal came."""
    return _CLEANS_UP.get() or is_interrupted()


def storage_request(path: str, describe: Callable[[BaseException], str]) -> dict[str, Any]:
    """Returns keyword arguments for a request to Google Cloud Storage that make the client repeat it after failures.

    A request is repeated after the statuses 429 and 5xx and after broken connections. By default, the client repeats
    only requests that name the generation that they expect. All our requests are safe to repeat, because each one
    reads, writes a whole object, or removes one.

    Args:
      path: the object or folder of the request, for the note to the user.
      describe: returns a description of the failure of a single try.

    Returns:
      The arguments `retry` and `timeout` (in seconds).
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    longest = RETRY_SECONDS * _LONGEST_DELAY
    retry = DEFAULT_RETRY.with_timeout(RETRY_SECONDS).with_delay(initial=min(1.0, longest), maximum=longest)

    # The client calls this with each request. `after_failure` is called after each failed try, and ends the retries by
    # raising the error.
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
    """Returns keyword arguments for a request to a job service of Google that repeat it while the service is busy.

    Args:
      seconds: the time within which the service must answer, repeated requests included.
    """
    from google.api_core.retry import Retry

    return {"retry": Retry(initial=0.5, maximum=8.0, timeout=seconds / 2), "timeout": seconds / 4}
