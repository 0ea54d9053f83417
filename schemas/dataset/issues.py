"""What a verification has found wrong, and how far it has come."""

from __future__ import annotations

import dataclasses
import threading


@dataclasses.dataclass(frozen=True)
class Issue:
    """Something that is not as the manifest or the schema says.

    Attributes:
      path: of the file, relative to the dataset directory.
      kind: 'missing', 'extra', 'unreadable', 'cut', 'damaged', 'changed', 'swapped', 'record', 'rows', 'graph',
        'schema', 'manifest', 'link' or 'account'.
      message: what was found, and what was expected.
    """

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Tally:
    """How much has been read so far; shared by the threads that read. `stop` makes them end early."""

    def __init__(self) -> None:
        self.bytes = self.rows = self.files = 0
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Adds to the counts by name."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
