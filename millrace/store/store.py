"""Stores answered requests: a thread writes what has gathered, has it on disk by one flush, and lets the answers leave.

A batch is stored whole or not at all. A row whose id is stored already is not stored again: its stored answer takes the
place of the new one. Only ids that clients gave are remembered; those that the server makes never come again.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from millrace.store import store_folder
from millrace.store.kept_schemas import keep_schema
from millrace.store.options import StoreError, StoreOptions
from millrace.store.writing import Answered, Counts, Outputs, Writer
from schemas.spec.loader import AnySchema

GROUP_BYTES = 8 << 20  # of rows that are flushed at once


@dataclasses.dataclass
class _Pending:
    batch: Answered
    size: int
    done: Future[Outputs]


class RequestStore:
    """A folder of stored requests, written by one process at a time. `append` and `submit` are thread-safe.

    Args:
      options: where and how.
      schema: of the export that is served.
      schema_yaml: its file, which is kept for `millrace label`.
      classes: the names of its classes, by id.
      clock: seconds since 1970.

    Raises:
      UsageError: the folder is another process's, or holds something else.
      StoreError: it cannot be read or written.
    """

    def __init__(
        self,
        options: StoreOptions,
        schema: AnySchema,
        *,
        classes: Sequence[str] = (),
        schema_yaml: bytes = b"",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._pending_bytes = 0
        self._room = threading.Lock()
        self._work: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._lock = store_folder.locked(options.path)
        try:
            if schema_yaml:
                with store_folder.store_errors(options.path):
                    keep_schema(options.path, schema, schema_yaml)
            self._writer = Writer(options, schema, classes, clock)
        except BaseException:
            os.close(self._lock)
            raise
        self._thread = threading.Thread(target=self._run, name="request-store", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        return self._writer.counts

    def append(self, batch: Answered) -> Outputs:
        """Stores a batch; returns once it is on disk, or with `asynchronous` once it waits to be written.

        Returns:
          What is to be answered: the batch's outputs, with the stored ones where an id was stored already, and an error
          for a row that has the id of another request.

        Raises:
          StoreError: it was not stored.
        """
        return self.submit(batch).result()

    def submit(self, batch: Answered) -> Future[Outputs]:
        """The same without waiting: the future has what `append` returns or raises."""
        done: Future[Outputs] = Future()
        size = _size(batch.columns) + sum(map(len, batch.sent.values()))
        with self._room:
            full = self._pending_bytes and self._pending_bytes + size > self._options.pending_bytes
            if full:
                self.counts.failed += len(batch.ids)
            else:
                self._pending_bytes += size
        if full:
            done.set_exception(StoreError(f"{self._options.path}: {self._pending_bytes:,} bytes wait to be stored"))
            return done
        self._work.put(_Pending(batch, size, done))
        if not self._options.asynchronous:
            return done
        answered: Future[Outputs] = Future()
        answered.set_result(batch.outputs)
        return answered

    def close(self) -> None:
        """Writes what waits, and frees the folder."""
        self._work.put(None)
        self._thread.join()
        self._writer.close()
        os.close(self._lock)

    def _run(self) -> None:
        ended = False
        while not ended:
            item = self._work.get()
            group: list[_Pending] = []
            size = 0
            while item is not None:
                group.append(item)
                size += item.size
                if size >= GROUP_BYTES:
                    break
                try:
                    item = self._work.get_nowait()
                except queue.Empty:
                    break
            ended = item is None
            if group:
                self._store(group)
                with self._room:
                    self._pending_bytes -= size

    def _store(self, group: Sequence[_Pending]) -> None:
        """Stores some batches together; where that fails, each alone, so that one does not fail for another."""
        try:
            results: list[Outputs] = self._writer.write([pending.batch for pending in group])
        except Exception as error:
            if len(group) > 1:
                for pending in group:
                    self._store([pending])
                return
            (pending,) = group
            with self._room:
                self.counts.failed += len(pending.batch.ids)
            if self._options.asynchronous:
                self._writer.counts.lost += len(pending.batch.ids)
                print(f"error: {len(pending.batch.ids):,} answered rows were not stored: {error}", file=sys.stderr)
            pending.done.set_exception(error)
            return
        for pending, outputs in zip(group, results, strict=True):
            pending.done.set_result(outputs)


def _size(columns: Mapping[str, Any]) -> int:
    return sum(
        sum(map(len, values)) + 40 * len(values) if values.dtype == object else values.nbytes
        for values in columns.values()
    )
