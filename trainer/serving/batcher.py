"""Requests of all clients in batches: while the model answers one batch, the next one gathers.

A batch begins when the model is free and either enough rows wait or the first of them has waited for `wait`. What waits
is bounded in rows and in bytes; what would exceed that is refused at once, so the queue never grows. A batch is
answered by one version, the one that is current when it begins.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from schemas.errors import MillraceError
from trainer.serving.errors import Refused
from trainer.serving.interface import Interface
from trainer.serving.loaded import Loaded
from trainer.serving.sink import RequestSink, ServedBatch

Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class BatchLimits:
    """How requests are batched.

    Attributes:
      rows: in a batch; a request of more is answered in several, by one version.
      wait: seconds that the first request of a batch waits for others while the model is free.
      queued_rows: that may wait.
      queued_bytes: that may wait, as arrays.
      patience: seconds that a request may wait before it is refused.
    """

    rows: int = 1024
    wait: float = 0.0
    queued_rows: int = 16_384
    queued_bytes: int = 256 << 20
    patience: float = 10.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outputs of a request's rows, and which version gave them."""

    outputs: Outputs
    version: str


@dataclasses.dataclass(eq=False)
class Waiting:
    """A request that waits for its answer."""

    arrays: Mapping[str, np.ndarray]
    rows: int
    ids: Sequence[str]
    size: int
    future: asyncio.Future[Answer]
    arrived: float  # of the monotonic clock
    received: float  # since 1970


class Batcher:
    """Batches the requests of one event loop, and runs them in a thread of its own.

    Args:
      current: the version that the next batch is answered by.
      interface: its inputs, the same of all versions.
      limits: how much a batch and the queue hold.
      sink: takes the answered batches; None: nothing does.
    """

    def __init__(
        self,
        current: Callable[[], Loaded],
        interface: Interface,
        limits: BatchLimits,
        sink: RequestSink | None = None,
    ) -> None:
        self._current = current
        self._interface = interface
        self._limits = limits
        self._sink = sink
        self._waiting: collections.deque[Waiting] = collections.deque()
        self.queued_rows = self.queued_bytes = 0
        self._busy = False
        self._timer: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_all, name="model", daemon=True)
        self._thread.start()

    def submit(self, arrays: Mapping[str, np.ndarray], rows: int, ids: Sequence[str]) -> asyncio.Future[Answer]:
        """Puts a request in the queue.

        Raises:
          Refused: the queue is full.
        """
        size = sum(map(_bytes_of, arrays.values()))
        limits = self._limits
        if self._waiting and (
            self.queued_rows + rows > limits.queued_rows or self.queued_bytes + size > limits.queued_bytes
        ):
            raise Refused(429, f"{self.queued_rows:,} rows wait already; send it again later", retry_after=1)
        future = self._loop.create_future()
        self._waiting.append(Waiting(arrays, rows, ids, size, future, self._loop.time(), time.time()))
        self.queued_rows += rows
        self.queued_bytes += size
        if not self._busy and self._timer is None:
            self._timer = (
                self._loop.call_later(limits.wait, self._begin) if limits.wait else self._loop.call_soon(self._begin)
            )
        return future

    def _begin(self) -> None:
        """Hands a batch to the thread."""
        self._timer = None
        batch: list[Waiting] = []
        rows = 0
        late = self._loop.time() - self._limits.patience
        while self._waiting and (not batch or rows + self._waiting[0].rows <= self._limits.rows):
            waiting = self._waiting.popleft()
            self.queued_rows -= waiting.rows
            self.queued_bytes -= waiting.size
            if waiting.future.cancelled():
                continue
            if waiting.arrived < late:
                waiting.future.set_exception(Refused(503, "the server is too busy; send it again later", retry_after=1))
                continue
            batch.append(waiting)
            rows += waiting.rows
        if not batch:
            return
        self._busy = True
        loaded = self._current()
        self._work.put(lambda: self._answer(batch, loaded))

    def _run_all(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _answer(self, batch: list[Waiting], loaded: Loaded) -> None:
        """Runs a batch, in the thread."""
        answers: list[Answer | Exception]
        try:
            answers = list(self._answers(batch, loaded))
        except Exception as error:
            answers = self._one_by_one(batch, loaded) if len(batch) > 1 else [error]
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._done, batch, answers)

    def _one_by_one(self, batch: list[Waiting], loaded: Loaded) -> list[Answer | Exception]:
        """The same for each request alone: what makes a batch fail fails for its own client only."""
        answers: list[Answer | Exception] = []
        for waiting in batch:
            try:
                answers += self._answers([waiting], loaded)
            except Exception as error:
                answers.append(error)
        return answers

    def _answers(self, batch: list[Waiting], loaded: Loaded) -> Sequence[Answer]:
        columns = {c.name: self._column(c.name, batch) for c in self._interface.columns}
        rows = sum(waiting.rows for waiting in batch)
        most = self._limits.rows
        if rows <= most:
            outputs = loaded.run(columns)
        else:
            parts = [
                loaded.run({name: values[start : start + most] for name, values in columns.items()})
                for start in range(0, rows, most)
            ]
            outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if self._sink is not None:
            ids = [each for waiting in batch for each in waiting.ids]
            received = [waiting.received for waiting in batch for _ in range(waiting.rows)]
            self._sink.append(ServedBatch(ids, columns, outputs, loaded.version, received, time.time()))
        if len(batch) == 1:
            return [Answer(outputs, loaded.version)]
        answers, start = [], 0
        for waiting in batch:
            stop = start + waiting.rows
            answers.append(Answer({name: values[start:stop] for name, values in outputs.items()}, loaded.version))
            start = stop
        return answers

    def _column(self, name: str, batch: list[Waiting]) -> np.ndarray:
        parts = [
            waiting.arrays[name] if name in waiting.arrays else np.full(waiting.rows, b"", object) for waiting in batch
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _done(self, batch: list[Waiting], answers: Sequence[Answer | Exception]) -> None:
        """Gives the answers, in the event loop."""
        self._busy = False
        if self._waiting:
            self._begin()
        for waiting, answer in zip(batch, answers, strict=True):
            if waiting.future.done():
                continue
            if isinstance(answer, Exception):
                waiting.future.set_exception(_explained(answer))
            else:
                waiting.future.set_result(answer)

    async def close(self) -> None:
        """Waits for everything that was accepted, and ends the thread."""
        while self._busy or self._waiting:
            await asyncio.sleep(0.005)
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)


def _bytes_of(array: np.ndarray) -> int:
    return sum(map(len, array)) + 8 * len(array) if array.dtype == object else array.nbytes


def _explained(error: Any) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, MillraceError):
        return Refused(503, str(error), retry_after=1)
    return Refused(500, f"the model failed: {getattr(error, 'message', error)}")
