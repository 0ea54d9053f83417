"""Gathers the requests of all clients in batches: while the model answers one batch, the next one fills.

A batch begins when the model is free and the first of its requests has waited for `--wait_ms`. What waits is bounded in
bytes and in seconds; what would exceed the bytes is refused at once. A batch is answered by the version that is in
service when it begins.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from millrace.serve.metrics import Metrics
from millrace.serve.model import RefusedRequest, ServedVersion, not_in_service
from millrace.serve.options import ServeOptions
from millrace.serve.requests import RequestRows
from millrace.serve.versions import Versions
from millrace.store.writer import Outputs, RequestStore, ServedBatch, StoredAnswers
from schemas.errors import MillraceError
from schemas.exports.model import ERROR, spread

log = logging.getLogger(__name__)
IMAGES, ROWS = 64, 1024  # in a batch, unless the options say otherwise
_DECODING = 1 << 30  # bytes that the model may take at a time to decode images; an image that takes more is alone
_OBJECT = 8 + sys.getsizeof("")  # bytes that a text takes in a list, besides its own


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outputs of a request's rows.

    Attributes:
      outputs: by name, `[rows, ...]`.
      loaded: the version that answers.
      versions: the number of the version that gave each row; a row whose id was answered before has an earlier one's.
    """

    outputs: Outputs
    loaded: ServedVersion
    versions: Sequence[str]


@dataclasses.dataclass(eq=False)
class _Waiting:
    """A request in the queue; see `Batcher.submit`."""

    rows: RequestRows
    ids: Sequence[str]
    from_client: bool
    version: str | None
    size: int  # bytes
    future: asyncio.Future[Answer]
    arrived: float  # of the loop's clock
    received: float  # since 1970


class Batcher:
    """Batches the requests of one event loop, and runs them in a thread of its own.

    Args:
      versions: the version in service.
      options: how much a batch and the queue hold.
      store: takes the answered batches; None: nothing does.
      metrics: counts batches.
    """

    def __init__(self, versions: Versions, options: ServeOptions, store: RequestStore | None, metrics: Metrics) -> None:
        self._versions, self._options, self._store, self._metrics = versions, options, store, metrics
        self._most_rows = options.batch_rows or (IMAGES if versions.current.interface.images else ROWS)
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self.queued_rows = self.queued_bytes = 0
        self._unanswered = 0  # requests
        self._busy = False  # a batch is being answered, or about to begin
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_all, name="model", daemon=True)
        self._thread.start()

    def submit(
        self, rows: RequestRows, ids: Sequence[str], version: str | None, *, from_client: bool
    ) -> asyncio.Future[Answer]:
        """Puts a request in the queue.

        Args:
          rows: those with errors do not reach the model.
          ids: one a row.
          version: the number of the version that the request names; None: any.
          from_client: whether the client chose the ids.

        Raises:
          RefusedRequest: the queue is full.
        """
        size = _size(rows, ids)
        if self._waiting and self.queued_bytes + size > self._options.queue_mb << 20:
            waits = f"{self.queued_rows:,} rows wait already, {self.queued_bytes:,} bytes"
            raise RefusedRequest(429, f"{waits}; send it again later", retry_after=1)
        future = self._loop.create_future()
        now = self._loop.time(), time.time()
        self._waiting.append(_Waiting(rows, ids, from_client, version, size, future, *now))
        self.queued_rows += rows.count
        self.queued_bytes += size
        self._unanswered += 1
        if not self._busy:
            self._busy = True
            self._loop.call_later(self._options.wait_ms / 1000, self._begin)
        return future

    def after_batches(self, work: Callable[[], None]) -> None:
        """Calls `work` in the model's thread, when all batches that have begun are done."""
        self._work.put(work)

    def _begin(self) -> None:
        """Hands a batch to the thread: the requests that have waited longest, for the version in service."""
        batch: list[_Waiting] = []
        rows, loaded = 0, self._versions.current
        late = self._loop.time() - self._options.answer_secs
        while self._waiting and (not batch or rows + self._waiting[0].rows.count <= self._most_rows):
            waiting = self._waiting.popleft()
            self.queued_rows -= waiting.rows.count
            self.queued_bytes -= waiting.size
            if waiting.future.done():  # cancelled: the server gives up what takes too long
                self._unanswered -= 1
            elif waiting.version not in (None, loaded.version):
                self._finish(waiting, not_in_service(waiting.version, loaded.version))
            elif waiting.arrived < late:
                message = "the server is too busy; send it again later"
                self._finish(waiting, RefusedRequest(503, message, retry_after=1))
            else:
                batch.append(waiting)
                rows += waiting.rows.count
        self._busy = bool(batch)
        if batch:
            self._work.put(functools.partial(self._answer, batch, loaded))

    def _run_all(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _answer(self, batch: Sequence[_Waiting], loaded: ServedVersion) -> None:
        """Runs a batch, in the thread. What makes a batch fail fails for its own client only."""
        begun = time.perf_counter()
        answers: list[tuple[Sequence[_Waiting], Future[StoredAnswers]]]
        try:
            answers = [(batch, self._answered(batch, loaded))]
        except Exception:
            answers = [([waiting], self._answered_alone(waiting, loaded)) for waiting in batch]
        rows = sum(waiting.rows.count for waiting in batch)
        self._in_loop(self._free, rows, time.perf_counter() - begun)
        for requests, outputs in answers:
            outputs.add_done_callback(functools.partial(self._in_loop, self._give, requests, loaded))

    def _answered_alone(self, waiting: _Waiting, loaded: ServedVersion) -> Future[StoredAnswers]:
        try:
            return self._answered([waiting], loaded)
        except Exception as error:
            failed: Future[StoredAnswers] = Future()
            failed.set_exception(error)
            return failed

    def _in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _answered(self, batch: Sequence[_Waiting], loaded: ServedVersion) -> Future[StoredAnswers]:
        """Has the model answer a batch; the outputs are there once they are stored."""
        rows = _together([waiting.rows for waiting in batch])
        outputs = self._outputs(rows, loaded)
        if self._store is None:
            done: Future[StoredAnswers] = Future()
            done.set_result(StoredAnswers(outputs, [loaded.version] * rows.count))
            return done
        ids = [row_id for waiting in batch for row_id in waiting.ids]
        from_client = [waiting.from_client for waiting in batch for _ in waiting.ids]
        received = [waiting.received for waiting in batch for _ in waiting.ids]
        served = ServedBatch(ids, from_client, rows.arrays, outputs, loaded.version, received, time.time(), rows.sent)
        return self._store.submit(served)

    def _outputs(self, rows: RequestRows, loaded: ServedVersion) -> dict[str, np.ndarray]:
        """Runs the model on the rows without errors; the others get their errors and no prediction."""
        most = self._most_rows
        if rows.decoding is not None:
            most = max(1, min(most, _DECODING // max(1, int(rows.decoding.max()))))
        if not rows.errors and rows.count <= most:
            return loaded.run(rows.arrays)
        good = np.array([row for row in range(rows.count) if row not in rows.errors], np.int64)
        answers = loaded.model.predict_rows(rows.arrays, good, most)
        outputs = spread(dict(sorted(answers.items())), good, rows.count)
        if rows.errors:
            outputs = {ERROR: np.full(rows.count, b"", object), **outputs}
            for row, error in rows.errors.items():
                outputs[ERROR][row] = error.encode()
        return outputs

    def _free(self, rows: int, seconds: float) -> None:
        """Begins the next batch, in the event loop."""
        self._begin()
        self._metrics.count_batch(rows, seconds)

    def _give(self, requests: Sequence[_Waiting], loaded: ServedVersion, done: Future[StoredAnswers]) -> None:
        """Gives the answers, in the event loop."""
        if (error := done.exception()) is not None:
            refused = _explained(error)
            for waiting in requests:
                self._finish(waiting, refused)
            return
        outputs, versions = done.result()
        start = 0
        for waiting in requests:
            piece = slice(start, start + waiting.rows.count)
            parts = {name: values[piece] for name, values in outputs.items()}
            self._finish(waiting, Answer(parts, loaded, versions[piece]))
            start = piece.stop

    def _finish(self, waiting: _Waiting, outcome: Answer | RefusedRequest) -> None:
        self._unanswered -= 1
        if waiting.future.done():  # cancelled
            return
        if isinstance(outcome, Answer):
            waiting.future.set_result(outcome)
        else:
            waiting.future.set_exception(outcome)

    async def close(self) -> None:
        """Waits for everything that was accepted, and ends the thread."""
        while self._unanswered:
            await asyncio.sleep(0.005)
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)


def _together(parts: Sequence[RequestRows]) -> RequestRows:
    """Joins the rows of several requests."""
    if len(parts) == 1:
        return parts[0]
    placed = list(zip(itertools.accumulate((part.count for part in parts), initial=0), parts, strict=False))
    decoding = [part.decoding for part in parts if part.decoding is not None]
    return dataclasses.replace(
        parts[0],
        arrays={name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays},
        count=sum(part.count for part in parts),
        errors={start + row: error for start, part in placed for row, error in part.errors.items()},
        sent={start + row: data for start, part in placed for row, data in part.sent.items()},
        decoding=np.concatenate(decoding) if decoding else None,
    )


def _size(rows: RequestRows, ids: Sequence[str]) -> int:
    """Returns the bytes that a request takes while it waits."""
    texts = [ids, rows.sent.values(), *(values for values in rows.arrays.values() if values.dtype == object)]
    numbers = sum(values.nbytes for values in rows.arrays.values() if values.dtype != object)
    return numbers + sum(sum(map(len, values)) + _OBJECT * len(values) for values in texts)


def _explained(error: BaseException) -> RefusedRequest:
    if isinstance(error, RefusedRequest):
        return error
    if isinstance(error, MillraceError):
        return RefusedRequest(503, str(error), retry_after=1)
    log.error("a batch failed: %s: %s", type(error).__name__, str(error)[:500])
    return RefusedRequest(500, f"the model failed: {type(error).__name__}")
