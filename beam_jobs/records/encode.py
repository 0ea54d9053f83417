"""Encodes transformed RecordBatches as framed tf.Examples, batch by batch."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from tfx_bsl.coders.example_coder import RecordBatchToExamples

from beam_jobs.core import parity, progress
from beam_jobs.core.accounting import (
    COUNTS,
    FILE,
    PARITY,
    PASSTHROUGH,
    WRITTEN,
    count,
    passthrough,
    write_rejects,
)
from beam_jobs.core.inputs import StagedInputs
from beam_jobs.core.source import KnownIds
from beam_jobs.core.workers import BatchCoder
from beam_jobs.profiles import tagged
from beam_jobs.records import examples
from beam_jobs.records.examples import RecordBlock, UnencodedRows
from beam_jobs.transform.rejects import PHASE, Outputs, find
from beam_jobs.transform.vocabularies import count_unseen
from schemas.profile.columns import ProfiledColumn, raw_apart
from schemas.profile.leakage import WatchedRows
from schemas.profile.profiles import Profiles
from schemas.rejects import Reject
from schemas.spec.table import OFFSET, SPLIT, SPLITS


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The records of a batch: framed tf.Examples, or rows of numbers that are encoded later.

    Attributes:
      records: the framed tf.Examples, large_binary `[rows]`, or UnencodedRows.
      splits: the index in SPLITS of each record's split, int8 `[rows]`.
      file, offset: the key of the first record's input file, and the record's offset in that file.
    """

    records: RecordBlock
    splits: np.ndarray
    file: int
    offset: int

    @property
    def nbytes(self) -> int:
        return int(self.records.nbytes)


beam.coders.registry.register_coder(Encoded, BatchCoder)


def encode(features: pa.RecordBatch, places: np.ndarray | None = None) -> RecordBlock:
    """Encodes a batch as framed tf.Examples, or packs the batch as UnencodedRows if all its features are numbers.

    UnencodedRows take a fraction of the bytes, and are encoded when the shard is written.

    Args:
      features: list columns of float32, int64 or binary.
      places: the key of each row's file, and the row's offset there, int64 `[rows, 2]`. None: the records carry no
        places.
    """
    rows = UnencodedRows.of(features, places)
    if rows is not None:
        return rows
    frames = examples.framed(RecordBatchToExamples(features))
    return frames if places is None else examples.with_places(frames, places)


class EncodeExamples(beam.DoFn):
    """Turns a RecordBatch with the passthrough columns into an Encoded. Rejects rows with invalid transformed values.

    Side outputs:
      COUNTS: the number of written records by file and split, and of values that `known_ids` lacks (see
        `beam_jobs.transform.vocabularies`).
      REJECTS: a RejectFile with the rejected rows of a batch (see `beam_jobs.transform.rejects`).
      PARITY: pairs (place, tf.Example) of a sample of the records, if `parity_threshold` is set.
      STATISTICS: the statistics of the bundle's written records, if `described` lists columns.
      LEAKAGE: hashes of the records and a sample of the train split, by which leakage is found, if `guarded` is set.

    A bundle can hold batches of several units of the input. The profile of each unit is computed by itself, and then
    merged with the profiles of the bundle's earlier units.
    """

    profiles: Profiles  # the merged profiles of the units of the current bundle that are complete
    current: tuple[int, Profiles]  # the number of the unit that is being processed, and the unit's profiles

    def __init__(
        self,
        outputs: Outputs,
        *,
        inputs: StagedInputs,
        staging: str,
        parity_threshold: int | None = None,
        described: Sequence[ProfiledColumn] | None = None,
        known_ids: Mapping[str, KnownIds] | None = None,
        guarded: WatchedRows | None = None,
        units: Sequence[tuple[int, int]] = (),
        placed: bool = False,
    ) -> None:
        self.outputs = outputs
        self.inputs = inputs
        self.staging = staging
        self.parity_threshold = parity_threshold
        self.described = described
        self.known_ids = known_ids or {}
        self.guarded = guarded
        self.placed = placed  # True: each record is stored with the key of its file and its offset
        self.units = units  # the start of each unit of the input: the key of a file, and an offset there

    def start_bundle(self) -> None:
        self.profiles = Profiles(self.described, self.guarded)
        self.current = 0, Profiles(self.described, self.guarded)

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        self.begin_unit(0)
        for tag, profile in tagged(self.profiles):
            yield beam.pvalue.TaggedOutput(tag, GlobalWindows.windowed_value(profile))

    def begin_unit(self, unit: int) -> None:
        """Merges the profiles of the unit that has just ended into `profiles`, and starts empty profiles for `unit`."""
        self.profiles.merge(self.current[1])
        self.current = unit, Profiles(self.described, self.guarded)

    def process(self, batch: pa.RecordBatch) -> Iterator[object]:
        """Rejects rows with invalid values, encodes the other rows, and yields the batch and its side outputs."""
        if not batch.num_rows:
            return
        batch, raw = raw_apart(batch)  # the transformed columns, and the raw columns for the profiles
        files, offsets = passthrough(batch, FILE), passthrough(batch, OFFSET)
        unit = bisect.bisect(self.units, (int(files[0]), int(offsets[0])))
        rejects = find(batch, self.outputs, self.inputs.path_of)
        if rejects:
            yield from self.reject([rejects[row] for row in sorted(rejects)], files[sorted(rejects)])
            accepted = pa.array(np.setdiff1d(np.arange(batch.num_rows), list(rejects)))
            batch, raw = batch.take(accepted), raw.take(accepted)
            if not batch.num_rows:
                return
            files, offsets = passthrough(batch, FILE), passthrough(batch, OFFSET)
        splits = passthrough(batch, SPLIT).astype(np.int8)
        features = batch.select([name for name in batch.schema.names if name not in PASSTHROUGH])
        records = encode(features, np.stack([files, offsets], axis=1).astype(np.int64) if self.placed else None)
        if unit != self.current[0]:
            self.begin_unit(unit)
        self.current[1].add(raw, splits, files, offsets)
        for counted in count_unseen(features, self.known_ids):
            yield beam.pvalue.TaggedOutput(COUNTS, counted)
        for i in parity.choose_rows(files, offsets, self.parity_threshold).tolist():
            place = int(files[i]), int(offsets[i])
            frame = examples.frames(examples.taken(records, np.array([i])))
            yield beam.pvalue.TaggedOutput(PARITY, (place, examples.record(frame, 0)))
        # Counts the rows of each (file, split) in one pass: each pair gets one number, and bincount counts the numbers.
        keys, places = np.unique(files, return_inverse=True)
        rows = np.bincount(places * len(SPLITS) + splits, minlength=len(keys) * len(SPLITS)).reshape(-1, len(SPLITS))
        for at, split in np.argwhere(rows).tolist():
            yield count(keys[at], WRITTEN, SPLITS[split], int(rows[at, split]))
        yield Encoded(records, splits, int(files[0]), int(offsets[0]))

    def reject(self, rejects: Sequence[Reject], keys: np.ndarray) -> Iterator[beam.pvalue.TaggedOutput]:
        """Writes a batch's rejects to a file and counts them. Args: keys: the key of each reject's input file."""
        piece = PHASE, rejects[0].source, rejects[0].offset
        progress.JOB.begin(piece)
        progress.JOB.add(piece, rejected=len(rejects))  # so that the job stops reading early if there are too many
        yield from write_rejects(self.staging, rejects, phase=PHASE)
        reasons = collections.Counter(zip(keys.tolist(), (r.reason for r in rejects), strict=True))
        for (input_key, reason), rows in reasons.items():
            yield count(input_key, "transform", reason, rows)
