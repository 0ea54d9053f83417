"""A request's rows on their way through a batch: what was asked, what waits, and what is answered."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from trainer.serving.loaded import Loaded

Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Ask:
    """The rows of a request.

    Attributes:
      arrays: by input; a key may be left out.
      rows: how many.
      ids: one a row.
      version: its number or label; None: the current one.
      given: whether the client gave the ids.
      errors: why rows are refused, by row; these do not reach the model.
      sent: rows as they were sent, in JSON, by row: those of which the arrays hold nothing.
      costs: bytes that decoding the images of each row takes; None where there are none.
    """

    arrays: Mapping[str, np.ndarray]
    rows: int
    ids: Sequence[str]
    version: str | None = None
    given: bool = False
    errors: Mapping[int, str] = dataclasses.field(default_factory=dict)
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)
    costs: np.ndarray | None = None


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
