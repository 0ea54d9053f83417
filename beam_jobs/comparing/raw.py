"""The statistics of raw files, by the schema of a dataset."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence

from schemas.comparison import Sample, samples
from schemas.errors import UsageError
from schemas.rejects import Reject

Progress = Callable[[int, float | None], None]  # records so far, and the share of the input


@dataclasses.dataclass
class RawFiles:
    """What raw files hold.

    Attributes:
      files: how many there are.
      sample: the records that a job would take up to its transform; None if there is none.
      read: how many records were read.
      rejected: how many of them would be rejected, by reason.
      examples: by reason, the file, the place and the fault of the first of them.
      lacks: what of label, weight and key the files do not have.
      complete: whether all records were read.
    """

    files: int
    sample: Sample | None = None
    read: int = 0
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    complete: bool = True

    def refuse(self, rejects: Sequence[Reject]) -> None:
        """Counts rejects."""
        for reject in rejects:
            self.rejected[reject.reason] += 1
            self.examples.setdefault(reject.reason, (reject.source, reject.offset, reject.detail))

    def describe(self, sketches: bytes) -> None:
        """Takes the statistics of the records; they are all of one split, whatever it is called."""
        self.sample = next(iter(samples(sketches).values()), None)

    def check(self, first: str) -> RawFiles:
        """Itself.

        Raises:
          UsageError: no record could be read.
        """
        if self.sample is None:
            bad = next(iter(self.examples.values()), None)
            why = f"; {bad[0]}, at {bad[1]:,}: {bad[2]}" if bad else ""
            raise UsageError(f"{first}: none of {self.read:,} records can be compared{why}")
        return self
