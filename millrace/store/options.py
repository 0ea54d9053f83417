"""The options of a store of requests."""

from __future__ import annotations

import dataclasses
import math

from schemas import storage
from schemas.errors import MillraceError, UsageError

LABELLED = "labelled-{}.csv"  # a file of labelled rows; {} is its number


class StoreError(MillraceError):
    """Requests could not be stored, and so are not answered."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Where and how requests are stored.

    Attributes:
      path: the folder, on local disk; it and its files are for this user alone.
      asynchronous: answer before the request is on disk.
      segment_bytes: a new file begins after so many bytes,
      segment_seconds: or after so many seconds.
      retain_days: files whose last request is older are removed; None: never.
      pending_bytes: that may wait to be written; more is refused.

    Raises:
      UsageError: an option is out of its range.
    """

    path: str
    asynchronous: bool = False
    segment_bytes: int = 64 << 20
    segment_seconds: float = 3600.0
    retain_days: float | None = None
    pending_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if not storage.is_local(self.path):
            raise UsageError(f"--store {self.path}: must be on local disk, where a write can be flushed")
        if self.retain_days is not None and not 0 < self.retain_days < math.inf:
            raise UsageError(f"--retain_days {self.retain_days:g}: must be more than 0")
        if self.segment_bytes < 1 or self.segment_seconds <= 0:
            raise UsageError("the size and the time after which a new file begins must be more than 0")
