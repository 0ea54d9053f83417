"""Stores answered requests: a thread takes the batches that have gathered, and commits them together.

A batch is stored whole or not at all, before its answers leave. A row whose id is stored already is not stored again:
its stored answer takes the place of the new one. Ids that the server makes never come again, so only those that
clients gave are looked up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import numpy as np

from millrace.store import database
from millrace.store.database import StoredRow, store_errors
from millrace.store.rows import (
    ID,
    MODEL,
    Outputs,
    ServedBatch,
    image_names,
    layout_of,
    put_error,
    put_stored_answer,
    table_rows,
)
from schemas import storage
from schemas.errors import UsageError
from schemas.spec.loader import AnySchema

IN_FLIGHT = 3  # batches that are being stored, together, or wait for it: then the model waits, too
RETENTION_SECONDS = 600.0  # between two looks for requests that are too old
DAY = 86_400.0


@dataclasses.dataclass
class Counts:
    """What was done: rows stored, commits, rows that repeat an id, and rows that could not be stored."""

    rows: int = 0
    commits: int = 0
    repeated: int = 0
    failed: int = 0


_Pending = tuple[ServedBatch, Future[Outputs]]


class RequestStore:
    """A folder of stored requests, written by one server at a time. `append` and `submit` are thread-safe.

    Args:
      path: the folder, on local disk; it and its files are for this user alone.
      schema: of the export that is served.
      schema_yaml: its file, which is kept for `millrace label`.
      classes: the names of its classes, by id.
      retain_days: requests that are older are removed; None: never.
      clock: seconds since 1970.

    Raises:
      UsageError: an option is out of its range, the folder is another process's, or holds something else, or requests
        of another schema.
      StoreError: it cannot be read or written.
    """

    def __init__(
        self,
        path: str,
        schema: AnySchema,
        *,
        classes: Sequence[str] = (),
        schema_yaml: bytes = b"",
        retain_days: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not storage.is_local(path):
            raise UsageError(f"--store {path}: must be on local disk, where a write can be flushed")
        if retain_days is not None and not 0 < retain_days < math.inf:
            raise UsageError(f"--retain_days {retain_days:g}: must be more than 0")
        self._path, self._retain_days, self._clock = path, retain_days, clock
        self._layout, self._classes = layout_of(schema), tuple(classes)
        self.counts = Counts()
        self._looked = -math.inf
        self._in_flight = threading.Semaphore(IN_FLIGHT)
        self._work: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        with contextlib.ExitStack() as opened, store_errors(path):
            opened.callback(os.close, database.lock(path))
            self._database = opened.enter_context(contextlib.closing(database.connect(path, create=True)))
            database.set_served(self._database, path, self._layout.form, schema_yaml)
            self._remove_old()
            self._opened = opened.pop_all()
        self._thread = threading.Thread(target=self._run, name="request-store", daemon=True)
        self._thread.start()

    def append(self, batch: ServedBatch) -> Outputs:
        """Stores a batch; returns once it is on disk.

        Returns:
          What is to be answered: the batch's outputs, with the stored ones where an id was stored already, and an error
          for a row that has the id of another request.

        Raises:
          StoreError: it was not stored.
        """
        return self.submit(batch).result()

    def submit(self, batch: ServedBatch) -> Future[Outputs]:
        """The same without waiting for the disk: the future has what `append` returns or raises.

        Waits while others are in flight.
        """
        done: Future[Outputs] = Future()
        self._in_flight.acquire()
        done.add_done_callback(lambda _: self._in_flight.release())
        self._work.put((batch, done))
        return done

    def close(self) -> None:
        """Writes what waits, and frees the folder."""
        self._work.put(None)
        self._thread.join()
        self._opened.close()

    def _run(self) -> None:
        while (pending := self._work.get()) is not None:
            group = [pending]
            while not self._work.empty() and (pending := self._work.get()) is not None:
                group.append(pending)
            self._store(group)
            if pending is None:
                return

    def _store(self, group: Sequence[_Pending]) -> None:
        """Stores some batches together; if that fails, each alone, so that one does not fail for another."""
        try:
            with store_errors(self._path):
                answers = self._write([batch for batch, _ in group])
        except Exception as error:
            if len(group) > 1:
                for pending in group:
                    self._store([pending])
                return
            ((batch, done),) = group
            self.counts.failed += len(batch.ids)
            done.set_exception(error)
            return
        for (_, done), outputs in zip(group, answers, strict=True):
            done.set_result(outputs)

    def _write(self, batches: Sequence[ServedBatch]) -> list[Outputs]:
        """Commits what is new of some batches. Returns what each is answered with."""
        if time.monotonic() - self._looked >= RETENTION_SECONDS:
            self._remove_old()
        ids = [name for batch in batches for name, own in zip(batch.ids, batch.ids_given, strict=True) if own]
        stored = database.requests_by_id(self._database, ids)
        new: list[StoredRow] = []
        images: dict[str, tuple[float, bytes]] = {}
        repeats: list[dict[int, StoredRow | None]] = []  # for each batch, by row; None: another request has the id
        for batch in batches:
            names = image_names(batch.columns) if self._layout.images else {}
            repeats.append({})
            for row, values in enumerate(table_rows(batch, self._layout.lines(names or batch.columns))):
                if values.given and values.id in stored:
                    first = stored[values.id]
                    same = (first.line, first.sent) == (values.line, values.sent)
                    repeats[-1][row] = first if same else None
                    continue
                new.append(values)
                if values.given:
                    stored[values.id] = values
                for name, files in names.items():
                    if files[row]:
                        images[files[row].decode()] = values.received, batch.columns[name][row]
        if new:
            database.insert(self._database, new, images)
            self.counts.rows += len(new)
            self.counts.commits += 1
        return [self._answer(batch, rows) for batch, rows in zip(batches, repeats, strict=True)]

    def _answer(self, batch: ServedBatch, repeats: Mapping[int, StoredRow | None]) -> Outputs:
        if not repeats:
            return batch.outputs
        outputs = {name: values.copy() for name, values in batch.outputs.items()}
        models = outputs[MODEL] = np.full(len(batch.ids), batch.version.encode(), object)
        self.counts.repeated += len(repeats)
        for row, stored in repeats.items():
            if stored is None:
                error = f"{ID}: {batch.ids[row][:80]} is the id of another request, with other values"
                put_error(outputs, row, error.encode())
                continue
            put_stored_answer(outputs, row, stored, self._classes)
            models[row] = stored.model.encode()
        return outputs

    def _remove_old(self) -> None:
        self._looked = time.monotonic()
        if self._retain_days is not None:
            database.remove_old(self._database, self._clock() - self._retain_days * DAY)
