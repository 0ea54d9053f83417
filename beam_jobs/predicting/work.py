"""What a worker needs to predict, and what it reports at the end of a bundle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core.accounting import RejectLimit
from beam_jobs.predicting.formats import FORMATS, Format
from beam_jobs.predicting.served import ExportRef
from beam_jobs.predicting.shards import ShardWriter, WrittenShard
from schemas.predictions.manifest import FormatName

PREDICTED = "predicted"  # in the place of a split, where counts have one


@dataclasses.dataclass(frozen=True)
class Work:
    """What a worker needs to predict, beside the input."""

    export: ExportRef
    classes: tuple[str, ...]
    staging: str
    limit: RejectLimit
    total: int
    format: FormatName
    shard_bytes: float
    batch_size: int
    pass_through: tuple[str, ...] = ()

    @property
    def form(self) -> Format:
        """How shards are written."""
        return FORMATS[self.format](self.classes)

    def writer(self) -> ShardWriter:
        """For the shards of one bundle."""
        return ShardWriter(self.staging, self.form, suffix=self.format, shard_bytes=self.shard_bytes)


def at_end(shards: Sequence[WrittenShard]) -> Iterator[WindowedValue]:
    """Shards as outputs of `finish_bundle`."""
    for shard in shards:
        yield WindowedValue(shard, MIN_TIMESTAMP, (GlobalWindow(),))
