"""Transformed RecordBatches -> framed tf.Examples, batch by batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
from tfx_bsl.coders.example_coder import RecordBatchToExamples

from beam_jobs import framing, parity
from beam_jobs.coders import BatchCoder
from beam_jobs.fixed_examples import fixed_examples
from beam_jobs.read import COUNTS, FILE, PARITY, PASSTHROUGH, REJECTS, WRITTEN
from schemas.raw import OFFSET, SPLIT
from schemas.rejects import Reject
from schemas.schema import SPLITS


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A batch's records: framed tf.Examples, the split of each (int8), and the place of the batch's first row."""

    frames: pa.LargeBinaryArray
    splits: np.ndarray
    file: int
    offset: int

    @property
    def nbytes(self) -> int:
        return int(self.frames.nbytes)


beam.coders.registry.register_coder(Encoded, BatchCoder)


def encode(features: pa.RecordBatch) -> pa.LargeBinaryArray:
    """The rows as framed tf.Examples, large_binary `[rows]`; list columns of float32, int64 and binary."""
    frames = fixed_examples(features)
    return framing.framed(RecordBatchToExamples(features)) if frames is None else frames


def passthrough(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """A passthrough column's values, int64 `[rows]`."""
    return np.asarray(batch.column(batch.schema.get_field_index(name)).flatten())


def without_class(batch: pa.RecordBatch, label: str) -> np.ndarray:
    """Which rows have the class id -1: a class that the train split does not hold. bool `[rows]`."""
    values = batch.column(batch.schema.get_field_index(label)).flatten()
    if not pa.types.is_integer(values.type):
        return np.zeros(batch.num_rows, bool)
    return np.asarray(values) < 0


class EncodeExamples(beam.DoFn):
    """RecordBatch of records with the passthrough columns -> Encoded.

    Side outputs: what was written, by file and split, in COUNTS; rows whose class the vocabulary lacks as Rejects in
    REJECTS (the raw bytes are filled in at the end, from the file); (place, tf.Example) in PARITY.
    """

    def __init__(self, *, label: str, column: str | None = None, paths: Sequence[str], parity_threshold: int) -> None:
        self.label = label
        self.column = column  # the label's in the file
        self.paths = tuple(paths)
        self.parity_threshold = parity_threshold

    def process(self, batch: pa.RecordBatch) -> Iterator[object]:
        bad = without_class(batch, self.label)
        if bad.any():
            yield from self.reject(batch.filter(pa.array(bad)))
            batch = batch.filter(pa.array(~bad))
        if not batch.num_rows:
            return
        file = int(passthrough(batch, FILE)[0])  # a batch is of one file
        offsets, splits = passthrough(batch, OFFSET), passthrough(batch, SPLIT).astype(np.int8)
        features = batch.select([name for name in batch.schema.names if name not in PASSTHROUGH])
        frames = encode(features)
        for i in parity.choose(file, offsets, self.parity_threshold).tolist():
            yield beam.pvalue.TaggedOutput(PARITY, ((file, int(offsets[i])), framing.record(frames, i)))
        for split, rows in enumerate(np.bincount(splits)):
            if rows:
                yield beam.pvalue.TaggedOutput(COUNTS, ((self.paths[file], WRITTEN, SPLITS[split]), int(rows)))
        yield Encoded(frames, splits, file, int(offsets[0]))

    def reject(self, batch: pa.RecordBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        """Rows of a class that the train split does not hold."""
        path = self.paths[int(passthrough(batch, FILE)[0])]
        for offset, split in zip(passthrough(batch, OFFSET), passthrough(batch, SPLIT), strict=True):
            reason = "label_not_in_vocabulary"
            detail = f"the label of this row of the {SPLITS[int(split)]} split occurs in no row of the train split"
            yield beam.pvalue.TaggedOutput(
                REJECTS, Reject(path, int(offset), "transform", reason, self.column, detail, b"")
            )
            yield beam.pvalue.TaggedOutput(COUNTS, ((path, "transform", reason), 1))
