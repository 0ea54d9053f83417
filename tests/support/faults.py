"""Faults of a network and of a busy server, for a gateway to inject into the requests that pass through it."""

from __future__ import annotations

import dataclasses
import re
import threading
import time


@dataclasses.dataclass
class Fault:
    """A fault of the first `times` requests whose `METHOD path?query`, and name of an upload, matches `where`.

    Attributes:
      where: a regular expression.
      times: how many requests fail.
      after: how many matching requests pass before the first one that fails.
      status: the status that is returned without asking the server, such as 429 or 503.
      cut: the connection ends after this many bytes of the answer's body; the server has performed the request.
      stall: seconds for which the answer stands still after `cut` bytes, before its connection ends.
      cut_upload: the connection ends after this many bytes of a part of an upload; the server has kept a beginning.
      wait: seconds before the request is passed on.
    """

    where: str
    times: int = 1
    after: int = 0
    status: int | None = None
    cut: int | None = None
    stall: float = 0.0
    cut_upload: int | None = None
    wait: float = 0.0


class Faults:
    """The pending faults. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: list[Fault] = []
        self.injected = 0
        self.requests: list[str] = []

    def set(self, *faults: Fault) -> None:
        """Replaces the pending faults, and resets the counts to 0."""
        with self._lock:
            self._coming = [dataclasses.replace(fault) for fault in faults]
            self.injected = 0
            self.requests = []

    def meet(self, request: str) -> Fault | None:
        """Returns the fault of a request, after its `wait`; None if it has none."""
        with self._lock:
            self.requests.append(request)
            found = next((f for f in self._coming if f.times and re.search(f.where, request)), None)
            if found is None:
                return None
            if found.after:
                found.after -= 1
                return None
            found.times -= 1
            self.injected += 1
        time.sleep(found.wait)
        return found
