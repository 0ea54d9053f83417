"""Keeps what a report costs a training small: pictures are left out while they would take too much of its time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

SHARE = 0.05  # of the time since the training began


class Budget:
    """Seconds that may be spent: a share of those since the budget was made. The first spending is always allowed."""

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._begun = clock()
        self._spent = 0.0

    @property
    def allows(self) -> bool:
        """Whether more may be spent now."""
        return self._spent <= self._share * (self._clock() - self._begun)

    @contextlib.contextmanager
    def spend(self) -> Iterator[None]:
        """Counts the time of its block."""
        before = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - before
