"""Requests of all clients in batches: while the model answers one batch, the next one gathers.

A batch begins when the model is free and the first of its requests has waited for `wait`. What waits is bounded in
bytes (and in rows, if that is asked for) and in seconds; what would exceed the bytes is refused at once. A batch is
answered by one version, the one that is current when it begins, or the one that its requests name.

A request's rows on their way through a batch: what was asked, what waits, and what is answered.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np

from millrace.serve.model import Interface, Loaded, Refused
from millrace.serve.options import BatchLimits
from millrace.serve.requests import Rows
from millrace.store.rows import MODEL, Outputs, ServedBatch
from schemas.errors import MillraceError
from schemas.exports.model import ERROR, spread


class RequestSink(Protocol):
    """Takes answered batches: a store of requests. The model's thread calls it."""

    def submit(self, batch: ServedBatch) -> Future[Outputs]:
        """No answer of the batch leaves before the future is done. Waits where too many are on their way.

        Returns:
          What to answer with: the batch's outputs, or others where an id was answered before, with `MODEL` among them.
          A MillraceError if the batch was not taken; its requests are then answered with it.
        """

    def close(self) -> None:
        """Called once, after the last `submit`, when every answer has been given."""


@dataclasses.dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
      rows: its rows; those with errors do not reach the model.
      ids: one a row.
      version: its number or label; None: the current one.
      given: whether the client gave the ids.
      costs: bytes that decoding the images of each row takes; None where there are none.
    """

    rows: Rows
    ids: Sequence[str]
    version: str | None
    given: bool
    costs: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outputs of a request's rows.

    Attributes:
      outputs: by name, `[rows, ...]`.
      loaded: the version that answers.
      versions: the number of the version that gave each row; a row whose id was answered before has an earlier one's.
    """

    outputs: Outputs
    loaded: Loaded
    versions: Sequence[str]


@dataclasses.dataclass(eq=False)
class Waiting:
    """A request that waits for its answer."""

    ask: Ask
    size: int  # bytes
    cost: int  # bytes
    future: asyncio.Future[Answer]
    arrived: float  # of the monotonic clock
    received: float  # since 1970


log = logging.getLogger(__name__)
_OBJECT = 8 + sys.getsizeof("")  # bytes that a text takes in a list, besides its own


class Batcher:
    """Batches the requests of one event loop, and runs them in a thread of its own.

    Args:
      named: the version of a number or a label; None asks for the current one. It may be gone.
      interface: its inputs, the same of all versions.
      limits: how much a batch and the queue hold.
      sink: takes the answered batches; None: nothing does.
      watch: called with the rows of each batch, and the seconds that the model took.
    """

    def __init__(
        self,
        named: Callable[[str | None], Loaded | None],
        interface: Interface,
        limits: BatchLimits,
        *,
        sink: RequestSink | None = None,
        watch: Callable[[int, float], None] = lambda rows, seconds: None,
    ) -> None:
        self._named = named
        self._interface = interface
        self._limits = limits
        self._sink = sink
        self._unstored = 0  # batches that the sink has not taken yet
        self._watch = watch
        self._waiting: collections.deque[Waiting] = collections.deque()
        self.queued_rows = self.queued_bytes = 0
        self._busy = False
        self._timer: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_all, name="model", daemon=True)
        self._thread.start()

    def submit(self, ask: Ask) -> asyncio.Future[Answer]:
        """Puts a request in the queue.

        Raises:
          Refused: the queue is full.
        """
        size = _size(ask)
        limits, rows = self._limits, ask.rows.count
        full = limits.queued_rows is not None and self.queued_rows + rows > limits.queued_rows
        if self._waiting and (full or self.queued_bytes + size > limits.queued_bytes):
            waits = f"{self.queued_rows:,} rows wait already, {self.queued_bytes:,} bytes"
            raise Refused(429, f"{waits}; send it again later", retry_after=1)
        future = self._loop.create_future()
        cost = 0 if ask.costs is None else int(ask.costs.sum())
        self._waiting.append(Waiting(ask, size, cost, future, self._loop.time(), time.time()))
        self.queued_rows += rows
        self.queued_bytes += size
        if not self._busy and self._timer is None:
            wait = limits.wait
            self._timer = self._loop.call_later(wait, self._begin) if wait else self._loop.call_soon(self._begin)
        return future

    def after_batches(self, work: Callable[[], None]) -> None:
        """Calls `work` in the model's thread, when all batches that have begun are done."""
        self._work.put(work)

    def _begin(self) -> None:
        """Hands a batch to the thread: the requests that have waited longest, of one version."""
        self._timer = None
        batch: list[Waiting] = []
        rows = cost = 0
        version: Loaded | None = None  # of those that are in the batch: others may be gone, or too late
        late = self._loop.time() - self._limits.patience
        while self._waiting:
            first = self._waiting[0]
            refused: Refused | None = None
            loaded = self._named(first.ask.version)
            if loaded is None:
                refused = Refused(404, f"version {first.ask.version} is not in service")
            elif first.arrived < late:
                refused = Refused(503, "the server is too busy; send it again later", retry_after=1)
            more = rows + first.ask.rows.count > self._limits.rows or cost + first.cost > self._limits.cost
            if batch and refused is None and (more or loaded is not version):
                break
            self._waiting.popleft()
            self.queued_rows -= first.ask.rows.count
            self.queued_bytes -= first.size
            if first.future.cancelled():
                continue
            if refused is not None:
                first.future.set_exception(refused)
            else:
                batch.append(first)
                rows, cost, version = rows + first.ask.rows.count, cost + first.cost, loaded
        if version is not None:
            self._busy = True
            self._work.put(functools.partial(self._answer, batch, version))

    def _run_all(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _answer(self, batch: list[Waiting], loaded: Loaded) -> None:
        """Runs a batch, in the thread."""
        answers: Sequence[Answer | Exception] | None
        begun = time.perf_counter()
        try:
            answers = self._answers(batch, loaded)
        except Exception as error:
            answers = [error] if len(batch) == 1 else None
            if answers is None:
                self._one_by_one(batch, loaded)
        seconds = time.perf_counter() - begun
        self._in_loop(self._free, sum(waiting.ask.rows.count for waiting in batch), seconds)
        if answers is not None:
            self._in_loop(self._give, batch, answers)

    def _one_by_one(self, batch: list[Waiting], loaded: Loaded) -> None:
        """The same for each request alone: what makes a batch fail fails for its own client only."""
        for waiting in batch:
            try:
                answers = self._answers([waiting], loaded)
            except Exception as error:
                answers = [error]
            if answers is not None:
                self._in_loop(self._give, [waiting], answers)

    def _in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _answers(self, batch: list[Waiting], loaded: Loaded) -> Sequence[Answer | Exception] | None:
        """Has the model answer a batch. None: a sink takes it first, and the answers are given then."""
        columns = {c.name: _column(c.name, batch) for c in self._interface.columns}
        ends = list(itertools.accumulate(waiting.ask.rows.count for waiting in batch))
        starts = [end - waiting.ask.rows.count for waiting, end in zip(batch, ends, strict=True)]
        placed = list(zip(starts, (waiting.ask.rows for waiting in batch), strict=True))
        errors = {start + row: error for start, rows in placed for row, error in rows.errors.items()}
        outputs = self._outputs(batch, columns, ends[-1], errors, loaded)
        if self._sink is None:
            return _parts(outputs, ends, loaded)
        ids = [each for waiting in batch for each in waiting.ask.ids]
        given = [waiting.ask.given for waiting in batch for _ in waiting.ask.ids]
        sent = {start + row: data for start, rows in placed for row, data in rows.sent.items()}
        received = [waiting.received for waiting in batch for _ in waiting.ask.ids]

        def stored(done: Future[Outputs]) -> None:
            self._in_loop(self._count_unstored, -1)
            error = done.exception()
            answers = [error] * len(batch) if isinstance(error, Exception) else _parts(done.result(), ends, loaded)
            self._in_loop(self._give, batch, answers)

        served = ServedBatch(ids, given, columns, outputs, loaded.version, received, time.time(), sent)
        done = self._sink.submit(served)
        self._in_loop(self._count_unstored, 1)
        done.add_done_callback(stored)
        return None

    def _count_unstored(self, more: int) -> None:
        self._unstored += more

    def _outputs(
        self,
        batch: list[Waiting],
        columns: Mapping[str, np.ndarray],
        rows: int,
        errors: Mapping[int, str],
        loaded: Loaded,
    ) -> dict[str, np.ndarray]:
        """The outputs of a batch's rows; those with errors do not reach the model."""
        if not errors:
            return self._run(batch, columns, np.arange(rows), loaded)
        kept = np.array([row for row in range(rows) if row not in errors], np.int64)
        good = {name: values[kept] for name, values in columns.items()}
        found = self._run(batch, good, kept, loaded) if len(kept) else loaded.model.no_rows()
        outputs = {ERROR: np.full(rows, b"", object), **spread(found, kept, rows)}
        for row, error in errors.items():
            outputs[ERROR][row] = error.encode()
        return outputs

    def _run(
        self, batch: list[Waiting], columns: Mapping[str, np.ndarray], kept: np.ndarray, loaded: Loaded
    ) -> dict[str, np.ndarray]:
        """Has the model answer the rows `kept` of a batch."""
        limits = self._limits
        if len(kept) <= limits.rows and sum(waiting.cost for waiting in batch) <= limits.cost:
            return loaded.run(columns)
        (waiting,) = batch  # more than fits is one large request
        costs = None if waiting.ask.costs is None else waiting.ask.costs[kept]
        parts = [
            loaded.run({name: values[start:stop] for name, values in columns.items()})
            for start, stop in _pieces(len(kept), costs, limits)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _free(self, rows: int, seconds: float) -> None:
        """Begins the next batch, in the event loop."""
        self._busy = False
        if self._waiting:
            self._begin()
        self._watch(rows, seconds)

    def _give(self, batch: list[Waiting], answers: Sequence[Answer | Exception]) -> None:
        """Gives the answers, in the event loop."""
        for waiting, answer in zip(batch, answers, strict=True):
            if waiting.future.done():
                continue
            if isinstance(answer, Exception):
                waiting.future.set_exception(_explained(answer))
            else:
                waiting.future.set_result(answer)

    async def close(self) -> None:
        """Waits for everything that was accepted, and ends the thread."""
        while self._busy or self._waiting or self._unstored:
            await asyncio.sleep(0.005)
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)


def _parts(outputs: Outputs, ends: Sequence[int], loaded: Loaded) -> list[Answer | Exception]:
    """The answer of each request, whose rows end there."""
    versions = [loaded.version] * ends[-1]
    if MODEL in outputs:
        versions = [version.decode() for version in outputs[MODEL].tolist()]
        outputs = {name: values for name, values in outputs.items() if name != MODEL}
    return [
        Answer({name: values[start:end] for name, values in outputs.items()}, loaded, versions[start:end])
        for start, end in itertools.pairwise([0, *ends])
    ]


def _column(name: str, batch: list[Waiting]) -> np.ndarray:
    """One input of all rows; a key that a request left out is empty."""
    asked = [waiting.ask.rows for waiting in batch]
    parts = [rows.arrays[name] if name in rows.arrays else np.full(rows.count, b"", object) for rows in asked]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pieces(rows: int, costs: np.ndarray | None, limits: BatchLimits) -> Iterator[tuple[int, int]]:
    """The parts of a large request: from row, to row."""
    start = spent = 0
    for row in range(rows):
        cost = 0 if costs is None else int(costs[row])
        if row > start and (row - start >= limits.rows or spent + cost > limits.cost):
            yield start, row
            start, spent = row, 0
        spent += cost
    yield start, rows


def _size(ask: Ask) -> int:
    """The bytes that a request takes while it waits."""
    sent, arrays = ask.rows.sent.values(), ask.rows.arrays.values()
    texts = [ask.ids, sent, *(values for values in arrays if values.dtype == object)]
    numbers = sum(values.nbytes for values in arrays if values.dtype != object)
    return numbers + sum(sum(map(len, each)) + _OBJECT * len(each) for each in texts)


def _explained(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, MillraceError):
        return Refused(503, str(error), retry_after=1)
    log.error("a batch failed: %s: %s", type(error).__name__, str(error)[:500])
    return Refused(500, f"the model failed: {type(error).__name__}")
