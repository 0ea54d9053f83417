"""Records what goes through `fsync`, and at each commit what of the run did not since it was last changed.

What has been flushed is recorded, not assumed: whoever wrote a file (TensorFlow writes behind Python), it must have
gone through `fsync` when the manifest gets its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from schemas.dataset import layout


class Flushes:
    """Which files and folders went to disk, as of which change, and which new names did not."""

    def __init__(self) -> None:
        self.flushed: dict[tuple[int, int], int] = {}  # device, inode -> when it had last been changed
        self.unnamed: set[str] = set()  # folders that were made, and whose parent was not flushed since
        self.commits: list[list[str]] = []  # what each manifest's rename found missing
        self._lock = threading.Lock()  # the lease's thread flushes, too
        self._fsync, self._mkdir, self._replace = os.fsync, os.mkdir, os.replace

    @contextlib.contextmanager
    def recorded(self) -> Iterator[Flushes]:
        """Records what this process does in the block."""
        with (
            mock.patch.object(os, "fsync", self._record_fsync),
            mock.patch.object(os, "mkdir", self._record_mkdir),
            mock.patch.object(os, "replace", self._record_replace),
        ):
            yield self

    def missing(self, run: Path) -> Iterator[str]:
        """Names in a run, and folders on the way to it, that a power cut may take."""
        output = run.parent
        for path in (run, *sorted(run.rglob("*"))):
            now = path.stat()
            if self.flushed.get((now.st_dev, now.st_ino), 0) < now.st_ctime_ns:
                yield str(path.relative_to(output))
        yield from (str(p) for p in (run, output, *output.parents) if str(p) in self.unnamed)

    def _record_fsync(self, handle: int) -> None:
        now = os.fstat(handle)
        self._fsync(handle)
        with self._lock:
            self.flushed[now.st_dev, now.st_ino] = now.st_ctime_ns
            self.unnamed = {path for path in self.unnamed if not _same_file(os.path.dirname(path), now)}

    def _record_mkdir(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._mkdir(path, *args, **kwargs)
        with self._lock:
            self.unnamed.add(os.path.abspath(path))

    def _record_replace(self, source: Any, target: Any, **kwargs: Any) -> None:
        if os.path.basename(target) == layout.MANIFEST:
            run = json.loads(Path(source).read_bytes())["run"]
            self.commits.append(list(self.missing(Path(target).parent / run)))
        self._replace(source, target, **kwargs)


def _same_file(path: str, now: os.stat_result) -> bool:
    if not os.path.isdir(path):
        return False
    found = os.stat(path)
    return (found.st_dev, found.st_ino) == (now.st_dev, now.st_ino)
