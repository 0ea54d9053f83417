"""Where answered requests go before their answers leave: the seam between the server and a store of requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class ServedBatch:
    """Rows that one model answered together.

    Attributes:
      ids: one a row: the request's id, followed by `/0`, `/1`, ... where the request has several rows.
      columns: the raw values by the export's input names, float32 `[rows]` or `[rows, width]`, or objects of `bytes`
        `[rows]`, as in the signature `serving_default`. A key that a request does not send is b"".
      outputs: the model's outputs by name, `[rows, ...]`, as in `trainer.export.outputs`. Where `error` is not b"", the
        row has no prediction.
      version: the name of the export that answered.
      received: one a row: when its request arrived, seconds since 1970.
      answered: when the model had answered, seconds since 1970.
    """

    ids: Sequence[str]
    columns: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    version: str
    received: Sequence[float]
    answered: float


class RequestSink(Protocol):
    """Takes answered batches. The server calls it from one thread at a time, outside its event loop."""

    def append(self, batch: ServedBatch) -> None:
        """Called after the model ran; no answer of the batch leaves before it returns.

        Raises:
          MillraceError: the batch was not taken; its requests are then answered with this error instead.
        """

    def close(self) -> None:
        """Called once, after the last `append`, when every answer has been given."""
