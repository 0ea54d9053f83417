"""A place in the endless sequence of epochs that a training reads. Importing this imports no TensorFlow."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Position:
    """Where reading begins.

    Attributes:
      epoch: the number of the epoch, from 0; its order follows from the seed and this number alone.
      record: how many records of that epoch are left out, since they were read before.
    """

    epoch: int = 0
    record: int = 0

    def records(self, rows: int) -> int:
        """How many records were read before, in epochs of `rows`."""
        return self.epoch * rows + self.record

    def after(self, records: int, *, rows: int) -> Position:
        """The place that many records further on, in epochs of `rows`."""
        epochs, record = divmod(self.record + records, rows)
        return Position(self.epoch + epochs, record)

    def next_epoch(self) -> Position:
        """The beginning of the next epoch; the place itself if an epoch begins there."""
        return Position(self.epoch + 1) if self.record else self
