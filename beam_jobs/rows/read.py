"""Ranges of files -> raw RecordBatches; counts every record and stores every reject."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_jobs.core import parity_sample, progress
from beam_jobs.core.accounting import (
    COUNTS,
    PARITY,
    PASSTHROUGH,
    REJECTS,
    RejectFile,
    RejectLimit,
    as_lists,
    give_up_if_certain,
    write_reject_file,
)
from beam_jobs.core.counting import counted, covered
from beam_jobs.rows.decoded_cache import cache_path, read_cache, write_through
from beam_jobs.transform.observed import Observed, ObserveMissing
from schemas.concurrency import prefetch
from schemas.formats import row_format
from schemas.rejects import Reject
from schemas.rows import Decoded, RowRange, list_array, raw_fields
from schemas.spec.raw_columns import OFFSET, SPLIT, raw_columns
from schemas.spec.table import SPLITS, Schema


def arrow_schema(schema: Schema, *, passthrough: bool) -> pa.Schema:
    """The batches' Arrow schema: `list<float32>` and `list<binary>` features, then the passthrough columns."""
    fields = raw_fields(raw_columns(schema))
    if passthrough:
        fields += [pa.field(name, pa.list_(pa.int64())) for name in PASSTHROUGH]
    return pa.schema(fields)


def train_batch(decoded: Decoded, schema: Schema) -> pa.RecordBatch | None:
    """The features of the rows in the train split; None if there are no such rows."""
    batch = decoded.batch
    rows = np.flatnonzero(np.asarray(batch.column(SPLIT)) == SPLITS.index("train"))
    if not len(rows):
        return None
    features = batch.select([c.name for c in raw_columns(schema)])
    if len(rows) == batch.num_rows:
        return features
    return pa.RecordBatch.from_arrays([_taken(column, rows) for column in features.columns], schema=features.schema)


def _taken(column: pa.ListArray, rows: np.ndarray) -> pa.ListArray:
    """Some rows of a raw column of fixed width. Arrow's own `take` of lists needs three times as long."""
    values = column.flatten()
    if pa.types.is_floating(values.type):
        return list_array(np.asarray(values).reshape(len(column), -1), rows)
    return list_array(values, rows)


def keyed_batch(decoded: Decoded, schema: Schema, file: int) -> pa.RecordBatch:
    """All rows, with the passthrough columns as tf.Transform expects them."""
    batch = decoded.batch
    columns = [batch.column(c.name) for c in raw_columns(schema)]
    columns.append(as_lists(np.full(batch.num_rows, file)))
    columns += [as_lists(np.asarray(batch.column(name))) for name in (OFFSET, SPLIT)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema, passthrough=True))


class _ReadRanges(beam.DoFn):
    """Reads ranges, prefetching one batch; counts records and writes rejects to separate files."""

    phase: str
    reject_file: RejectFile | None = None  # the rejects of the last range

    def __init__(
        self, schema: Schema, staging: str, limit: RejectLimit, total: int, *, cache_dir: str | None = None
    ) -> None:
        self.schema = schema
        self.staging = staging
        self.limit = limit
        self.total = total
        self.cache_dir = cache_dir  # caches what the first read decodes; None if the reads may run on other machines

    def decode(self, part: RowRange) -> Iterator[Decoded]:
        """The range's batches. Its rejects are on disk when this ends, also after an error."""
        self.reject_file = None
        rejects: list[Reject] = []
        size = (part.end or part.file.size) - part.start
        piece = part.file.path, part.start
        progress.enter(self.phase)
        progress.begin(piece)
        try:
            for decoded in prefetch(self.read(part)):
                rejects += decoded.rejects
                progress.add(piece, read=decoded.read, rejected=len(decoded.rejects))
                self.give_up_if_certain(part)
                yield decoded
            progress.add(piece, done=size)
        finally:
            if rejects:
                self.reject_file = RejectFile(write_reject_file(self.staging, self.phase, rejects), len(rejects))

    def read(self, part: RowRange) -> Iterator[Decoded]:
        """The range's records, decoded."""
        return row_format(self.schema).read_range(part, self.schema, with_split=True)

    def give_up_if_certain(self, part: RowRange) -> None:
        """Raises if the reject limit is exceeded even if all remaining records are valid."""
        if part.file.gzip:  # the number of remaining records is unknown
            return
        now = progress.counters
        to_come = max(0, self.total - now.done) // max(1, part.file.min_record_bytes)
        give_up_if_certain(self.limit, now.read + to_come)


class ReadForAnalysis(_ReadRanges):
    """RowRange -> RecordBatches of the raw features of the train split."""

    phase = "analyzing"

    def read(self, part: RowRange) -> Iterator[Decoded]:
        decoded = super().read(part)
        return decoded if self.cache_dir is None else write_through(cache_path(self.cache_dir, part), decoded)

    def process(self, part: RowRange) -> Iterator[pa.RecordBatch]:
        for decoded in self.decode(part):
            batch = train_batch(decoded, self.schema)
            if batch is not None:
                yield batch


class ReadForTransform(_ReadRanges):
    """RowRange -> RecordBatches of all rows with the passthrough columns.

    Side outputs: (CountKey, rows) in COUNTS, RejectFile in REJECTS, (place, raw tf.Example) in PARITY.
    """

    phase = "transforming"

    def __init__(
        self,
        schema: Schema,
        staging: str,
        limit: RejectLimit,
        total: int,
        *,
        file_numbers: Mapping[str, int],
        parity_threshold: int | None,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__(schema, staging, limit, total, cache_dir=cache_dir)
        self.file_numbers = dict(file_numbers)
        self.parity_threshold = parity_threshold
        self.observe = ObserveMissing(schema)

    def read(self, part: RowRange) -> Iterator[Decoded]:
        path = None if self.cache_dir is None else cache_path(self.cache_dir, part)
        return read_cache(path) if path is not None and os.path.exists(path) else super().read(part)

    def process(self, part: RowRange) -> Iterator[object]:
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        path = part.file.path
        file = self.file_numbers[path]
        observed = Observed()
        for decoded in self.decode(part):
            yield from counted(path, read=decoded.read, rejects=decoded.rejects)
            if not decoded.batch.num_rows:
                continue
            self.observe(decoded.batch, np.asarray(decoded.batch.column(SPLIT)), observed)
            batch = keyed_batch(decoded, self.schema, file)
            offsets = np.asarray(decoded.batch.column(OFFSET))
            chosen = parity_sample.choose(file, offsets, self.parity_threshold)
            if len(chosen):
                features = batch.select([c.name for c in raw_columns(self.schema)]).take(pa.array(chosen))
                for place, example in zip(offsets[chosen], RecordBatchToExamples(features), strict=True):
                    yield beam.pvalue.TaggedOutput(PARITY, ((file, int(place)), example))
            yield batch
        if self.reject_file:
            yield beam.pvalue.TaggedOutput(REJECTS, self.reject_file)
        for key, rows in observed.counts():
            yield beam.pvalue.TaggedOutput(COUNTS, (key, rows))
        yield covered(path, part.covers)
