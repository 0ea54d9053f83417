"""The task of one measured process, the same for this project and for every rival.

A module that writes has `write(task) -> None`, which writes the records of `task.source` to the folder `task.output`. A
module that reads has `read(task) -> Iterator[np.ndarray]`, which makes complete shuffled batches of `task.source` and
yields their labels (integers), or the records themselves if it parses nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work.

    Attributes:
      source: the file, folder or pattern to read.
      output: the folder to write; '' for a reader.
      table: the name of the data's `benchmarks.tables.Table`; '' for images.
      rows: the number of rows or images in the source.
      epochs: a reader's passes over the source; 0: without end.
      seconds: how long a reader is timed, after a first pass to warm up.
      batch_size: a reader's batch size.
      shuffle_buffer: a reader's shuffle buffer, in records.
    """

    source: str
    output: str = ""
    table: str = ""
    rows: int = 0
    epochs: int = 1
    seconds: float = 0.0
    batch_size: int = 512
    shuffle_buffer: int = 50_000

    @property
    def passes(self) -> Iterable[int]:
        """A number for each pass; without end where the task has none."""
        return range(self.epochs) if self.epochs else itertools.count()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))
