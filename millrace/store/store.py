"""Stores answered requests: a thread writes what has gathered, has it on disk by one flush, and lets the answers leave.

A batch is stored whole or not at all. A row whose id is stored already is not stored again: its stored answer takes the
place of the new one. Only ids that clients gave are remembered; those that the server makes never come again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from millrace.store import folder
from millrace.store.columns import (
    MODEL,
    Encoded,
    Outputs,
    ServedBatch,
    columns_of,
    encode,
    refuse_taken_id,
    stored_answer,
)
from millrace.store.folder import store_errors
from millrace.store.ids import Ids, Place, StoreError, key_of
from millrace.store.segments import Segment, csv_path, numbers
from schemas import storage
from schemas.errors import UsageError, counted
from schemas.formats import text
from schemas.spec.loader import AnySchema

GROUP_BYTES = 8 << 20  # of rows that are flushed at once
SEGMENT_SECONDS = 3600.0
IN_FLIGHT = 3  # batches that are being stored or wait for it: then the model waits, too
RETENTION_SECONDS = 600.0  # between two looks for files that are too old
DAY = 86_400.0


@dataclasses.dataclass
class Counts:
    """What was done: rows written, flushes, rows that repeat an id, and rows that could not be stored."""

    rows: int = 0
    flushes: int = 0
    repeated: int = 0
    failed: int = 0


class _Pending:
    """A batch that waits to be stored."""

    def __init__(self, batch: ServedBatch) -> None:
        self.batch = batch
        self.done: Future[Outputs] = Future()
        self.size = sum(map(len, batch.sent.values()))  # bytes
        for values in batch.columns.values():
            texts = values.dtype == object
            self.size += sum(map(len, values)) + 40 * len(values) if texts else values.nbytes


class RequestStore:
    """A folder of stored requests, written by one process at a time. `append` and `submit` are thread-safe.

    Args:
      path: the folder, on local disk; it and its files are for this user alone.
      schema: of the export that is served.
      schema_yaml: its file, which is kept for `millrace label`.
      classes: the names of its classes, by id.
      asynchronous: answer before the request is on disk.
      retain_days: files whose last request is older are removed; None: never.
      segment_bytes: a new file begins after so many bytes, or after `SEGMENT_SECONDS`.
      pending_bytes: that may wait to be written; more is refused.
      clock: seconds since 1970.

    Raises:
      UsageError: an option is out of its range, the folder is another process's, or holds something else.
      StoreError: it cannot be read or written.
    """

    def __init__(
        self,
        path: str,
        schema: AnySchema,
        *,
        classes: Sequence[str] = (),
        schema_yaml: bytes = b"",
        asynchronous: bool = False,
        retain_days: float | None = None,
        segment_bytes: int = 64 << 20,
        pending_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not storage.is_local(path):
            raise UsageError(f"--store {path}: must be on local disk, where a write can be flushed")
        if retain_days is not None and not 0 < retain_days < math.inf:
            raise UsageError(f"--retain_days {retain_days:g}: must be more than 0")
        self._path, self._asynchronous, self._retain_days = path, asynchronous, retain_days
        self._segment_bytes, self._most_pending = segment_bytes, pending_bytes
        self._columns = columns_of(schema)
        self._classes = tuple(classes)
        self._clock = clock
        self._head = {
            "schema": schema.fingerprint,
            "columns": list(self._columns.names),
            "delimiter": self._columns.csv.delimiter,
            "quote": self._columns.csv.quote,
            "images": self._columns.images,
            "classes": list(self._classes),
        }
        self.counts = Counts()
        self._begun = self._looked = time.monotonic()
        self._pending_bytes = 0
        self._room = threading.Lock()
        self._in_flight = threading.Semaphore(IN_FLIGHT)
        self._work: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._lock = folder.locked(path)
        try:
            with store_errors(path):
                if schema_yaml:
                    folder.keep_schema(path, schema, schema_yaml)
                self._ids = Ids(path)
                self._segment = self._recover()
                self._remove_old()
        except BaseException:
            os.close(self._lock)
            raise
        self._thread = threading.Thread(target=self._run, name="request-store", daemon=True)
        self._thread.start()

    def append(self, batch: ServedBatch) -> Outputs:
        """Stores a batch; returns once it is on disk, or with `asynchronous` once it waits to be written.

        Returns:
          What is to be answered: the batch's outputs, with the stored ones where an id was stored already, and an error
          for a row that has the id of another request.

        Raises:
          StoreError: it was not stored.
        """
        return self.submit(batch).result()

    def submit(self, batch: ServedBatch) -> Future[Outputs]:
        """The same without waiting for the disk: the future has what `append` returns or raises.

        Waits while others are in flight; with `asynchronous`, more than may wait is not stored instead.
        """
        pending = _Pending(batch)
        if not self._asynchronous:
            self._in_flight.acquire()
            pending.done.add_done_callback(lambda _: self._in_flight.release())
            self._work.put(pending)
            return pending.done
        with self._room:
            waiting = self._pending_bytes
            full = waiting and waiting + pending.size > self._most_pending
            if full:
                self.counts.failed += len(batch.ids)
            else:
                self._pending_bytes += pending.size
        answered: Future[Outputs] = Future()
        if full:
            answered.set_exception(StoreError(f"{self._path}: {waiting:,} bytes wait to be stored"))
        else:
            self._work.put(pending)
            answered.set_result(batch.outputs)
        return answered

    def close(self) -> None:
        """Writes what waits, and frees the folder."""
        self._work.put(None)
        self._thread.join()
        if self._segment is not None:
            self._segment.close()
        self._ids.close()
        os.close(self._lock)

    def _run(self) -> None:
        item = self._work.get()
        while item is not None:
            group, size = [item], item.size
            while size < GROUP_BYTES and not self._work.empty() and (item := self._work.get()) is not None:
                group.append(item)
                size += item.size
            self._store(group)
            if self._asynchronous:
                with self._room:
                    self._pending_bytes -= size
            if item is not None:
                item = self._work.get()

    def _store(self, group: Sequence[_Pending]) -> None:
        """Stores some batches together; where that fails, each alone, so that one does not fail for another."""
        try:
            results = self._write([pending.batch for pending in group])
        except Exception as error:
            if len(group) > 1:
                for pending in group:
                    self._store([pending])
                return
            (pending,) = group
            rows = len(pending.batch.ids)
            with self._room:
                self.counts.failed += rows
            if self._asynchronous:
                print(f"error: {counted(rows, 'answered rows')} not stored: {error}", file=sys.stderr)
            pending.done.set_exception(error)
            return
        for pending, outputs in zip(group, results, strict=True):
            pending.done.set_result(outputs)

    def _write(self, batches: Sequence[ServedBatch]) -> list[Outputs]:
        """Writes what is new of some batches, flushes it, and gives what each is answered with."""
        given = [key_of(name) for batch in batches for name, own in zip(batch.ids, batch.given, strict=True) if own]
        with store_errors(self._path):
            known = self._ids.find(given)
        segment = self._open_segment()
        data: list[bytes] = []
        at, rows = segment.end, 0
        new: dict[bytes, Place] = {}
        repeats: list[list[tuple[int, Place | None]]] = []  # None: another request has the id
        for batch in batches:
            encoded = self._encode(batch, segment.number)
            repeats.append([])
            if not any(batch.given):
                data.append(encoded.data)
                at, rows = at + len(encoded.data), rows + len(batch.ids)
                continue
            for row, (name, own) in enumerate(zip(batch.ids, batch.given, strict=True)):
                line, key = encoded.line(row), key_of(name)
                place = known.get(key) or new.get(key) if own else None
                if place is not None:
                    repeats[-1].append((row, place if place.digest == encoded.digests[row] else None))
                    continue
                if own:
                    new[key] = Place(segment.number, at, len(line), encoded.digests[row])
                data.append(line)
                at, rows = at + len(line), rows + 1
        if rows:
            self._flush(segment, b"".join(data), rows, max(at for batch in batches for at in batch.received))
            self._ids.add(new, segment=segment.number, upto=segment.end)
        return [self._answer(batch, found) for batch, found in zip(batches, repeats, strict=True)]

    def _encode(self, batch: ServedBatch, number: int) -> Encoded:
        values: Mapping[str, Any] = batch.columns
        if self._columns.images:
            with store_errors(self._path):
                values = folder.write_images(self._path, number, batch.columns)
        return encode(self._columns, batch, values)

    def _answer(self, batch: ServedBatch, repeated: Sequence[tuple[int, Place | None]]) -> Outputs:
        if not repeated:
            return batch.outputs
        outputs = {name: values.copy() for name, values in batch.outputs.items()}
        models = outputs[MODEL] = np.full(len(batch.ids), batch.version.encode(), object)
        self.counts.repeated += len(repeated)
        for row, place in repeated:
            if place is None:
                refuse_taken_id(outputs, row, batch.ids[row])
                continue
            cells = self._cells(place)
            stored_answer(cells, outputs, row, self._classes)
            models[row] = cells[MODEL]
        return outputs

    def _cells(self, place: Place) -> dict[str, bytes]:
        """The cells of a stored row."""
        with store_errors(self._path), open(csv_path(self._path, place.segment), "rb") as file:
            file.seek(place.start)
            ((_, cells),) = text.records(file.read(place.size), self._columns.csv)
        names = self._columns.names
        return dict(zip(names, cells, strict=True))

    def _flush(self, segment: Segment, data: bytes, rows: int, last: float) -> None:
        try:
            segment.append(data, rows=rows, last=last)
        except OSError as error:
            with contextlib.suppress(StoreError):
                self._leave_torn()
            raise StoreError(f"{self._path}: {error.strerror}; the requests were not stored") from error
        self.counts.rows += rows
        self.counts.flushes += 1

    def _leave_torn(self) -> None:
        """Cuts off what was written of rows that were not answered, and leaves that file alone from then on."""
        if self._segment is not None and self._segment.torn:
            with store_errors(self._path):
                self._segment.cut()
            self._segment.close()
            self._segment = None

    def _open_segment(self) -> Segment:
        """The file that is written, or a new one where it is full, old or was cut."""
        self._leave_torn()
        now, path, segment = time.monotonic(), self._path, self._segment
        if segment is not None and (segment.end >= self._segment_bytes or now - self._begun >= SEGMENT_SECONDS):
            segment.close()
            segment = self._segment = None
        with store_errors(path):
            if segment is None:
                number = max(numbers(path), default=0) + 1
                head = {**self._head, "token": secrets.token_hex(8)}
                segment = self._segment = Segment.create(path, number, head, self._columns.header)
                self._begun = now
            if now - self._looked >= RETENTION_SECONDS:
                self._remove_old()
        return segment

    def _remove_old(self) -> None:
        """Removes the files whose last request is older than `retain_days`, and forgets their ids."""
        self._looked = time.monotonic()
        path, days = self._path, self._retain_days
        if days is not None:
            folder.remove_old(path, before=self._clock() - days * DAY, spared=self._segment)
            self._ids.forget_all_but(numbers(path))

    def _recover(self) -> Segment | None:
        """Cuts off what the last process left incomplete, and reads the ids that the index lacks."""
        path = self._path
        folder.complete_removals(path)
        segment = folder.reopen_last(path, self._columns, self._head)
        self._ids.forget_all_but(numbers(path))
        for number in numbers(path):
            folder.index_segment(path, number, self._columns, self._head, self._ids)
        return segment
