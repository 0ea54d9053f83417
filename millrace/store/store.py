"""Writes groups of answered requests: what is new of them to the file, on disk before it returns, each id once."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from millrace.store import folder
from millrace.store.columns import MODEL, SENT, Columns, Encoded, columns_of, encode, refuse_taken_id, stored_answer
from millrace.store.folder import keep_schema, store_errors
from millrace.store.ids import Ids, Place, key_of
from millrace.store.options import StoreError, StoreOptions
from millrace.store.segments import Segment, csv_path, numbers
from schemas.formats import text
from schemas.spec.loader import AnySchema

RETENTION_SECONDS = 600.0  # between two looks for files that are too old
DAY = 86_400.0
Outputs = Mapping[str, np.ndarray]


class Answered(Protocol):
    """Rows that a model answered together: `millrace.serve.sink.ServedBatch`."""

    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def given(self) -> Sequence[bool]:
        """Which ids are clients' own, and may come again; empty: none."""

    @property
    def columns(self) -> Mapping[str, Any]: ...
    @property
    def sent(self) -> Mapping[int, bytes]:
        """The rows that could not be read, in JSON, by row."""

    @property
    def outputs(self) -> Outputs: ...
    @property
    def version(self) -> str: ...
    @property
    def received(self) -> Sequence[float]: ...
    @property
    def answered(self) -> float: ...


@dataclasses.dataclass
class Counts:
    """What was done: rows and bytes written, flushes, rows that repeat an id, rows that could not be stored, and those
    of them that were answered (only if asynchronous)."""

    rows: int = 0
    bytes: int = 0
    flushes: int = 0
    repeated: int = 0
    failed: int = 0
    lost: int = 0


class Writer:
    """Writes a store whose folder is locked. Used by one thread at a time.

    Args:
      options: where and how.
      schema: of the export that is served.
      classes: the names of its classes, by id.
      clock: seconds since 1970.
    """

    def __init__(
        self, options: StoreOptions, schema: AnySchema, classes: Sequence[str], clock: Callable[[], float]
    ) -> None:
        self._options = options
        self._columns: Columns = columns_of(schema)
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
        self._segment: Segment | None = None
        self._cut = False  # whether the segment must be cut before it is written again
        self._begun = self._looked = time.monotonic()
        with store_errors(options.path):
            self._ids = Ids(options.path)
            self._recover()

    def close(self) -> None:
        """Closes the files."""
        if self._segment is not None:
            self._segment.close()
        self._ids.close()

    def write(self, batches: Sequence[Answered]) -> list[Outputs]:
        """Writes what is new of some batches, flushes it, and gives what each is answered with."""
        given = (pair for batch in batches if any(batch.given) for pair in zip(batch.ids, batch.given, strict=True))
        with store_errors(self._options.path):
            known = self._ids.find([key_of(name) for name, own in given if own])
        segment = self._open_segment()
        data: list[bytes] = []
        at, rows, last = segment.end, 0, 0.0
        new: dict[bytes, Place] = {}
        lines: dict[int, bytes] = {}  # of this group, by where they will be
        repeats: list[list[tuple[int, Place | None]]] = []  # None: another request has the id
        for batch in batches:
            encoded = self._encode(batch, segment.number)
            repeats.append([])
            for row in range(len(batch.ids)) if any(batch.given) else ():
                line = encoded.line(row)
                key = key_of(batch.ids[row])
                place = known.get(key) or new.get(key) if batch.given[row] else None
                if place is not None:
                    repeats[-1].append((row, place if place.digest == encoded.digests[row] else None))
                    continue
                if batch.given[row]:
                    new[key] = Place(segment.number, at, len(line), encoded.digests[row])
                lines[at] = line
                data.append(line)
                at, rows = at + len(line), rows + 1
            if not any(batch.given):
                data.append(encoded.data)
                at, rows = at + len(encoded.data), rows + len(batch.ids)
            last = max([last, *batch.received])
        if data:
            self._flush(segment, b"".join(data), rows, last)
            self._ids.add(new.items(), segment=segment.number, upto=segment.end)
        return [self._answer(batch, found, lines) for batch, found in zip(batches, repeats, strict=True)]

    def _encode(self, batch: Answered, number: int) -> Encoded:
        values: Mapping[str, Any] = batch.columns
        if self._columns.images:
            with store_errors(self._options.path):
                values = folder.write_images(self._options.path, number, batch.columns)
        return encode(
            self._columns,
            values,
            batch.sent,
            batch.outputs,
            ids=batch.ids,
            model=batch.version,
            received=batch.received,
            answered=batch.answered,
            digests=any(batch.given),
        )

    def _answer(
        self, batch: Answered, repeated: Sequence[tuple[int, Place | None]], lines: Mapping[int, bytes]
    ) -> Outputs:
        if not repeated:
            return batch.outputs
        outputs = {name: values.copy() for name, values in batch.outputs.items()}
        models = outputs[MODEL] = np.full(len(batch.ids), batch.version.encode(), object)
        for row, place in repeated:
            self.counts.repeated += 1
            if place is None:
                refuse_taken_id(outputs, row, batch.ids[row])
                continue
            line = lines.get(place.start) if self._segment and place.segment == self._segment.number else None
            cells = self._cells(line or self._line(place))
            stored_answer(cells, outputs, row, self._classes)
            models[row] = cells[MODEL]
        return outputs

    def _line(self, place: Place) -> bytes:
        with store_errors(self._options.path):
            if self._segment is not None and place.segment == self._segment.number:
                return self._segment.read(place.start, place.size)
            with open(csv_path(self._options.path, place.segment), "rb") as file:
                file.seek(place.start)
                return file.read(place.size)

    def _cells(self, line: bytes) -> dict[str, bytes]:
        ((_, cells),) = text.records(line, self._columns.csv)
        names = self._columns.names
        if len(cells) < len(names):  # of an earlier release
            names = tuple(name for name in names if name != SENT)
        return dict(zip(names, cells, strict=True))

    def _flush(self, segment: Segment, data: bytes, rows: int, last: float) -> None:
        try:
            segment.append(data, rows=rows, last=last)
        except OSError as error:
            self._cut = True
            with contextlib.suppress(StoreError):
                self._cut_off()
            raise StoreError(f"{self._options.path}: {error.strerror}; the requests were not stored") from error
        self.counts.rows += rows
        self.counts.bytes += len(data)
        self.counts.flushes += 1

    def _cut_off(self) -> None:
        """Removes what was written of rows that were not answered, and leaves that file alone from then on."""
        if self._segment is None or not self._cut:
            return
        with store_errors(self._options.path):
            self._segment.cut()
        self._segment.close()
        self._segment, self._cut = None, False

    def _open_segment(self) -> Segment:
        """The file that is written, or a new one where it is full, old or was cut."""
        self._cut_off()
        now = time.monotonic()
        segment, options = self._segment, self._options
        if segment is not None and (
            segment.end >= options.segment_bytes or now - self._begun >= options.segment_seconds
        ):
            segment.close()
            segment = self._segment = None
        if segment is None:
            with store_errors(options.path):
                number = max(numbers(options.path), default=0) + 1
                head = {**self._head, "token": secrets.token_hex(8)}
                segment = Segment.create(options.path, number, head, self._columns.header)
            self._segment, self._begun = segment, now
        if now - self._looked >= RETENTION_SECONDS:
            self.remove_old()
        return segment

    def remove_old(self) -> None:
        """Removes the files whose last request is older than `retain_days`, and forgets their ids."""
        self._looked = time.monotonic()
        path, days = self._options.path, self._options.retain_days
        if days is not None:
            with store_errors(path):
                folder.remove_old(path, before=self._clock() - days * DAY, spared=self._segment)
                self._ids.forget_all_but(numbers(path))

    def _recover(self) -> None:
        """Cuts off what the last process left incomplete, and reads the ids that the index lacks."""
        path = self._options.path
        folder.complete_removals(path)
        self._segment = folder.take_up_last(path, self._columns, self._head)
        present = numbers(path)
        self._ids.forget_all_but(present)
        for number in present:
            folder.index_segment(path, number, self._columns, self._head, self._ids)
        self.remove_old()


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
        self._lock = folder.locked(options.path)
        try:
            if schema_yaml:
                with folder.store_errors(options.path):
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
