"""The folder that is served: a folder for each version, put there in one step, and a record of every decision.

    serving/
      1/  2/  3/          exports; a server loads the highest number
      decisions.jsonl     every decision, refused exports too, one JSON object a line

An export is copied aside, flushed to disk and compared with its checksums. Under a lock on the folder its decision is
logged, and it is renamed to the number after the one that it was compared with: so of two promotions at once one finds
its number taken, or another version in service, and fails. A process that is killed leaves a copy aside, which the next
promotion removes, or the line of a version that is not there, which the next promotion of that number replaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

from schemas import interrupts, storage
from schemas.dataset import layout
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import check_files, numbered, read_notes
from schemas.storage import folders
from schemas.storage.json_files import as_written, read_lines

LOG = "decisions.jsonl"
ASIDE = ".incoming-"
PATIENCE = 60.0  # seconds that a promotion waits for another one's last step, which takes milliseconds

Record = dict[str, Any]


class ServingFolder:
    """A folder of versions on this machine.

    Raises:
      UsageError: the path is a file, or in a dataset.
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise UsageError(f"{self.path}: is a file; expected the folder that is served")
        layout.check_outside(self.path, "", layout.MANIFEST, itself=True)

    def versions(self) -> list[int]:
        """Returns the numbers of all versions, rising."""
        return [number for number in map(int, numbered(self.path)) if os.path.isdir(self.folder(number))]

    def current(self) -> int | None:
        """Returns the version that a server loads, which is the highest one; None: there is none."""
        return max(self.versions(), default=None)

    def folder(self, version: int) -> str:
        return os.path.join(self.path, str(version))

    def origin(self, version: int) -> int:
        """Returns the version whose export this one is: another one if a roll-back put it there."""
        with as_written(os.path.join(self.path, LOG), "a decision"):
            entries = (entry for entry in self.decisions() if entry.get("version") == version)
            return next((int(entry.get("restores", version)) for entry in entries), version)

    @contextlib.contextmanager
    def copied(self, export: str) -> Iterator[str]:
        """Copies an export beside the versions, flushes it to disk and compares it with its checksums.

        Raises:
          MillraceError: it cannot be written, or differs from its checksums.
        """
        folders.make(self.path)
        aside = os.path.join(self.path, f"{ASIDE}{secrets.token_hex(8)}")
        with self._locked(), storage.wrap_errors(aside):  # a copy that has no lock yet is like a leftover
            self._remove_leftovers()
            os.mkdir(aside)
            handle = os.open(aside, os.O_RDONLY)  # locked while this process lives: so leftovers are told from copies
            storage.lock(handle)
        try:
            folders.copy(export, aside)
            folders.flush(aside)
            check_files(aside, read_notes(aside)[1])
            yield aside
        finally:
            folders.remove(aside)
            os.close(handle)

    def publish(self, aside: str, record: Record, *, after: int | None, keep: int) -> int:
        """Puts a copy in service, as the version after `after`, and logs the decision.

        Args:
          aside: what `copied` gave.
          record: why.
          after: the version that was in service when it was decided; None: there was none.
          keep: how many versions stay.

        Raises:
          MillraceError: another version has been put in service since.
        """
        version = (after or 0) + 1
        record = {**record, "version": version}
        with self._locked(), storage.wrap_errors(self.path):
            now = self.current()
            if now != after:
                raise MillraceError(
                    f"{self.path}: version {now} was put in service meanwhile, and this export was compared with "
                    f"{'none' if after is None else f'version {after}'}; nothing was changed. Promote again, to have "
                    "it compared with that one."
                )
            interrupts.check()
            try:
                with interrupts.deferred():
                    self._append(record)
                    os.rename(aside, self.folder(version))
                    storage.sync_folder(self.path)
                    self._prune(keep)
            except KeyboardInterrupt as interrupt:
                if interrupt.__context__ is not None:  # an error, before or after the export was in service
                    raise
                interrupts.handled()  # it is in service, and the promotion done
        return version

    def log(self, record: Record) -> None:
        """Logs a decision that changes nothing."""
        folders.make(self.path)
        with self._locked(), storage.wrap_errors(self.path):
            self._append(record)

    def decisions(self) -> list[Record]:
        """Returns all decisions that were logged, oldest first."""
        path = os.path.join(self.path, LOG)
        return list(read_lines(path, "a decision")) if os.path.exists(path) else []

    def _append(self, record: Record) -> None:
        """Logs a decision; a promotion in place of one that was killed before its version was there."""
        version = record.get("version")
        entries = [e for e in self.decisions() if version is None or e.get("version") != version]
        text = "".join(f"{json.dumps(e, ensure_ascii=False, allow_nan=False)}\n" for e in (*entries, record))
        storage.write_bytes(os.path.join(self.path, LOG), text.encode())

    def _prune(self, keep: int) -> None:
        for version in self.versions()[:-keep]:
            aside = os.path.join(self.path, f"{ASIDE}{secrets.token_hex(8)}")
            os.rename(self.folder(version), aside)  # so that no server finds half of it
            folders.remove(aside)

    def _remove_leftovers(self) -> None:
        """Removes the copies of killed processes; those of live ones are locked."""
        for name in os.listdir(self.path):
            if name.startswith(ASIDE):
                path = os.path.join(self.path, name)
                handle = os.open(path, os.O_RDONLY)
                try:
                    if storage.lock(handle, wait=False):
                        folders.remove(path)
                finally:
                    os.close(handle)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock for the last step of a promotion; the system frees it when its process ends."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            deadline = time.monotonic() + PATIENCE
            while not storage.lock(handle, wait=False):
                if time.monotonic() > deadline:
                    raise MillraceError(f"{self.path}: another promotion holds the folder; is its process stopped?")
                time.sleep(0.05)
            yield
        finally:
            os.close(handle)
