"""Sorts rows in bounded memory: what is more than a budget goes through temporary files on local disk."""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator

from schemas.storage.json_files import parse_json

BUDGET = 16 << 20  # bytes of rows in memory
MAX_RUNS = 64  # files that are merged at once: each is open while it is read

Row = tuple[str | int, ...]  # of one length and of the same types; rows are ordered as tuples


class ExternalSort:
    """Takes rows in any order, and yields them sorted, as often as it is gone through.

    The temporary files are removed when it is closed or garbage collected.

    Args:
      budget: about how many bytes of rows are held in memory.
    """

    def __init__(self, *, budget: int = BUDGET) -> None:
        self._budget = budget
        self._held: list[Row] = []
        self._size = 0
        self._runs: list[str] = []
        self._folder: str | None = None
        self._remove: Callable[[], object] = bool

    def add(self, row: Row) -> None:
        """Takes a row in."""
        self._held.append(row)
        # An object of Python takes about 50 bytes beside its text.
        self._size += 60 + sum(50 + len(part) if isinstance(part, str) else 32 for part in row)
        if self._size > self._budget:
            self._spill()

    def __iter__(self) -> Iterator[Row]:
        self._held.sort()
        return heapq.merge(*(_read(path) for path in self._runs), self._held) if self._runs else iter(self._held)

    def close(self) -> None:
        """Removes the temporary files."""
        self._held, self._runs = [], []
        self._remove()
        self._folder = None

    def _spill(self) -> None:
        self._held.sort()
        self._runs.append(self._write(iter(self._held)))
        self._held, self._size = [], 0
        if len(self._runs) == MAX_RUNS:
            merged = self._write(heapq.merge(*(_read(path) for path in self._runs)))
            for path in self._runs:
                os.remove(path)
            self._runs = [merged]

    def _write(self, rows: Iterator[Row]) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="millrace-")
            # Also when it is garbage collected, or when the process ends.
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = os.path.join(self._folder, uuid.uuid4().hex)
        with open(path, "w", encoding="ascii") as file:
            for row in rows:
                file.write(json.dumps(row))
                file.write("\n")
        return path


def _read(path: str) -> Iterator[Row]:
    with contextlib.closing(open(path, encoding="ascii")) as file:
        for line in file:
            yield tuple(parse_json(line))
