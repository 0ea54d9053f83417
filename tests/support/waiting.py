"""Waits for what another process does. A verdict never depends on how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 600  # only a hang reaches this limit


def until(true: Callable[[], bool], what: str) -> None:
    """Returns once `true()`; fails if that does not come, and names `what` was waited for."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS} s"
        time.sleep(0.02)
