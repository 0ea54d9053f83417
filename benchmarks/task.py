"""What one measured process is asked to do: the same for this project and for every rival.

A module that writes has `write(task) -> None`: it makes records of `task.source` in the folder `task.output`. A module
that reads has `read(task) -> Iterator[np.ndarray]`: shuffled batches of `task.source`, of which each is made whole, and
whose labels (integers) it gives; or the records themselves, where nothing is parsed.
"""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work.

    Attributes:
      source: the file, the folder or the pattern that is read.
      output: the folder that is written; of a writer only.
      table: the name of the `benchmarks.tables.Table` that the data is; '' for images.
      rows: how many rows or images the source holds.
      epochs: passes over the source, of a reader; 0: for ever.
      seconds: how long a reader is timed, after a first pass that warms it up.
      batch_size: of a reader.
      shuffle_buffer: of a reader, in records.
    """

    source: str
    output: str = ""
    table: str = ""
    rows: int = 0
    epochs: int = 1
    seconds: float = 0.0
    batch_size: int = 512
    shuffle_buffer: int = 50_000

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))
