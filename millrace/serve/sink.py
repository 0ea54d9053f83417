"""Where answered requests go before their answers leave: the seam between the server and a store of requests."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

MODEL = "_model"  # in the outputs of a sink: bytes, the version that gave each row
Done = Callable[[Mapping[str, np.ndarray] | Exception], None]


@dataclasses.dataclass(frozen=True)
class ServedBatch:
    """Rows that one model answered together.

    Attributes:
      ids: one a row: the request's id, followed by `/0`, `/1`, ... where the request has several rows.
      given: one a row: whether the client gave the id, and so may send it again.
      columns: the raw values by the export's input names, float32 `[rows]` or `[rows, width]`, or objects of `bytes`
        `[rows]`, as in the signature `serving_default`. A key that a request does not send is b"". Of a row that could
        not be read they are NaN and b"".
      sent: the rows that could not be read, as JSON, by row.
      outputs: the model's outputs by name, `[rows, ...]`, as in `trainer.export.outputs`. Where `error` is not b"", the
        row has no prediction.
      version: the name of the export that answered.
      received: one a row: when its request arrived, seconds since 1970.
      answered: when the model had answered, seconds since 1970.
    """

    ids: Sequence[str]
    given: Sequence[bool]
    columns: Mapping[str, np.ndarray]
    sent: Mapping[int, bytes]
    outputs: Mapping[str, np.ndarray]
    version: str
    received: Sequence[float]
    answered: float


class RequestSink(Protocol):
    """Takes answered batches. The server calls it from one thread at a time, outside its event loop."""

    def append(self, batch: ServedBatch) -> Mapping[str, np.ndarray] | None:
        """Called after the model ran; no answer of the batch leaves before it returns.

        Returns:
          Outputs to answer with in place of the batch's, where an id was answered before, with `MODEL` among them;
          None: the batch's.

        Raises:
          MillraceError: the batch was not taken; its requests are then answered with this error instead.
        """

    def close(self) -> None:
        """Called once, after the last `append`, when every answer has been given."""


class SinkThread:
    """Hands batches to a sink in a thread of its own, while the model answers the next ones.

    `put` waits while two batches wait already, so that answers which are not stored yet do not pile up.
    """

    def __init__(self, sink: RequestSink) -> None:
        self._sink = sink
        self._work: queue.Queue[tuple[ServedBatch, Done] | None] = queue.Queue(2)
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)
        self._thread.start()

    def put(self, batch: ServedBatch, done: Done) -> None:
        """Hands over a batch; `done` is called with the outputs to answer with, or with what the sink raised."""
        self._work.put((batch, done))

    def close(self) -> None:
        """Waits until all batches are taken."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            batch, done = item
            try:
                done(self._sink.append(batch) or batch.outputs)
            except Exception as error:
                done(error)
