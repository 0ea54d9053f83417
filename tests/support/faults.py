"""Faults of a network and of a busy server, which a gateway injects into what passes it, and counts of that."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Iterator


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
      flip: the first byte of the answer's body arrives changed.
    """

    where: str
    times: int = 1
    after: int = 0
    status: int | None = None
    cut: int | None = None
    stall: float = 0.0
    cut_upload: int | None = None
    wait: float = 0.0
    flip: bool = False


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


@dataclasses.dataclass
class Traffic:
    """What passed through the gateway since the faults were set. Thread-safe.

    Attributes:
      connections: how many clients have opened.
      at_once: requests that were under way, at most.
      largest_body: bytes of a request, at most.
    """

    connections: int = 0
    at_once: int = 0
    largest_body: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0

    def reset(self) -> None:
        with self._lock:
            self.connections = self.at_once = self.largest_body = 0

    def connected(self) -> None:
        with self._lock:
            self.connections += 1

    @contextlib.contextmanager
    def request(self, size: int) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
            self.at_once = max(self.at_once, self._under_way)
            self.largest_body = max(self.largest_body, size)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
