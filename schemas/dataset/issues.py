"""The issues that a verification finds, and its progress."""

from __future__ import annotations

import dataclasses
import threading


@dataclasses.dataclass(frozen=True)
class Issue:
    """A difference from the manifest or the schema.

    Attributes:
      path: the file, relative to the dataset directory.
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
    """How much has been read so far; thread-safe. Setting `stop` ends the reading threads early."""

    def __init__(self) -> None:
        self.bytes = self.rows = self.files = 0
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Adds to the counts by name."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
