"""Counts what passes through a gateway."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator


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
