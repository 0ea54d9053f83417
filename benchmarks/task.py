"""What a measured process has to do, and the figures that it reports."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

Kind = Literal["write", "read", "train"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work.

    Attributes:
      kind: `write`: write the records of `source` to `output`; `read`: yield the labels of shuffled training batches of
        `source`; `train`: train on `source`, and return scores.
      function: `module:function` in `benchmarks.candidates`. It takes this task and `options`.
      options: keyword arguments of the function.
      source: the file or folder to read.
      table: the name of the data's `benchmarks.tables.Table`; '' for photos and for sets of `benchmarks.model_sets`.
      rows: the number of rows or photos in the source.
      output: the folder that a writer writes to.
      epochs: a reader's passes over the source; 0: without end.
      seconds: how long an endless reader is timed, after a first pass to warm up.
      batch_size: a reader's batch size.
      shuffle_buffer: a reader's shuffle buffer, in records.
      seed: the seed of a training.
      max_steps: the steps of a training of Millrace, but of trees; 0: as many as it chooses itself.
    """

    kind: Kind
    function: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source: str
    table: str = ""
    rows: int
    output: str = ""
    epochs: int = 1
    seconds: float = 0.0
    batch_size: int = 512
    shuffle_buffer: int = 50_000
    seed: int = 1
    max_steps: int = 0

    @property
    def passes(self) -> Iterable[int]:
        """A number for each pass of a reader; without end where it has none."""
        return range(self.epochs) if self.epochs else itertools.count()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one task.

    Attributes:
      count: the rows or photos that were written or trained on, or read within the timed part.
      seconds: the time of the work, without imports; of a reader, the timed part.
      cpu: its seconds of CPU, including child processes; None: they were not recorded.
      peak_bytes: its peak memory; None if the system does not provide it.
      classes: the number of records of each class, if a reader read complete epochs.
      scores: the scores of a trained model on the test split: `loss`, `accuracy`, `auc`.
    """

    count: int
    seconds: float
    cpu: float | None
    peak_bytes: float | None
    classes: Mapping[str, int] | None = None
    scores: Mapping[str, float] | None = None

    @property
    def rate(self) -> float:
        """Rows or photos per second."""
        return self.count / self.seconds

    @property
    def cpu_each(self) -> float | None:
        """Seconds of CPU per row or photo."""
        return None if self.cpu is None else self.cpu / self.count
