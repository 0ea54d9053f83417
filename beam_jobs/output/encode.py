"""Transformed RecordBatches -> framed tf.Examples, batch by batch."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from tfx_bsl.coders.example_coder import RecordBatchToExamples

from beam_jobs.core import parity_sample, progress
from beam_jobs.core.accounting import COUNTS, FILE, PARITY, PASSTHROUGH, REJECTS, WRITTEN, RejectFile, write_reject_file
from beam_jobs.core.coders import BatchCoder
from beam_jobs.output import tfrecord_frames
from beam_jobs.output.example_encoder import fixed_examples
from beam_jobs.transform.observed import Observed, Watched, observe_stored
from beam_jobs.transform.rejects import PHASE, Outputs, find
from schemas.rejects import Reject
from schemas.spec.raw_columns import OFFSET, SPLIT
from schemas.spec.table import SPLITS


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A batch's records: framed tf.Examples, the split of each (int8), and the file and offset of the first row."""

    frames: pa.LargeBinaryArray
    splits: np.ndarray
    file: int
    offset: int

    @property
    def nbytes(self) -> int:
        return int(self.frames.nbytes)


beam.coders.registry.register_coder(Encoded, BatchCoder)


def encode(features: pa.RecordBatch) -> pa.LargeBinaryArray:
    """Encodes list columns of float32, int64 and binary as framed tf.Examples, large_binary `[rows]`."""
    frames = fixed_examples(features)
    return tfrecord_frames.framed(RecordBatchToExamples(features)) if frames is None else frames


def passthrough(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """A passthrough column's values, int64 `[rows]`."""
    return np.asarray(batch.column(batch.schema.get_field_index(name)).flatten())


class EncodeExamples(beam.DoFn):
    """RecordBatch with the passthrough columns -> Encoded.

    Side outputs: COUNTS has the written records by file and split, and observations on the train rows (see
    `beam_jobs.transform.observed`); REJECTS has a RejectFile of rows whose transformed values are invalid (see
    `beam_jobs.transform.rejects`); PARITY has (place, tf.Example), where a threshold is given.
    """

    observed: Observed  # in the current bundle

    def __init__(
        self,
        outputs: Outputs,
        watched: Watched,
        *,
        paths: Sequence[str],
        staging: str,
        parity_threshold: int | None = None,
    ) -> None:
        self.outputs = outputs
        self.watched = watched
        self.paths = tuple(paths)
        self.staging = staging
        self.parity_threshold = parity_threshold

    def start_bundle(self) -> None:
        self.observed = Observed()

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        for key, rows in self.observed.counts():
            yield beam.pvalue.TaggedOutput(COUNTS, GlobalWindows.windowed_value((key, rows)))

    def process(self, batch: pa.RecordBatch) -> Iterator[object]:
        if not batch.num_rows:
            return
        file = int(passthrough(batch, FILE)[0])  # all rows of a batch are from one file
        rejects = find(batch, self.outputs, self.paths[file], passthrough(batch, OFFSET))
        if rejects:
            yield from self.reject(file, [rejects[row] for row in sorted(rejects)])
            batch = batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(rejects))))
            if not batch.num_rows:
                return
        offsets, splits = passthrough(batch, OFFSET), passthrough(batch, SPLIT).astype(np.int8)
        features = batch.select([name for name in batch.schema.names if name not in PASSTHROUGH])
        frames = encode(features)
        observe_stored(features, splits, self.watched, self.observed)
        for i in parity_sample.choose(file, offsets, self.parity_threshold).tolist():
            yield beam.pvalue.TaggedOutput(PARITY, ((file, int(offsets[i])), tfrecord_frames.record(frames, i)))
        for split, rows in enumerate(np.bincount(splits)):
            if rows:
                yield beam.pvalue.TaggedOutput(COUNTS, ((self.paths[file], WRITTEN, SPLITS[split]), int(rows)))
        yield Encoded(frames, splits, file, int(offsets[0]))

    def reject(self, file: int, rejects: Sequence[Reject]) -> Iterator[beam.pvalue.TaggedOutput]:
        """Stores and counts a batch's rejects."""
        piece = PHASE, file, rejects[0].offset
        progress.begin(piece)
        progress.add(piece, rejected=len(rejects))  # reading stops if there are too many
        path = write_reject_file(self.staging, PHASE, rejects)
        yield beam.pvalue.TaggedOutput(REJECTS, RejectFile(path, len(rejects)))
        for reason, rows in collections.Counter(reject.reason for reject in rejects).items():
            yield beam.pvalue.TaggedOutput(COUNTS, ((self.paths[file], "transform", reason), rows))
