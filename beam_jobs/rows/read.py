"""Groups of ranges of files -> raw RecordBatches; counts every record and stores every reject.

What the first read of a group decodes is cached on local disk for the second read (`beam_jobs.rows.cache`). Corrected
records are read like ranges of their files, which may be gone.
"""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_jobs.core import parity, progress, workers
from beam_jobs.core.accounting import (
    COUNTS,
    COVERED,
    NUMBERS_LEFT,
    NUMBERS_WRITTEN,
    PARITY,
    PASSTHROUGH,
    RejectFile,
    as_lists,
    count,
    counted,
    digested,
    give_up_if_certain,
    write_rejects,
)
from beam_jobs.core.options import RejectLimit
from beam_jobs.core.workers import TURN
from beam_jobs.profiles import findings_of
from beam_jobs.rows.cache import cache_path, claimed, read_cache, write_through
from beam_jobs.rows.children import SharedWork
from beam_jobs.rows.groups import Group, InGroup, decode, joined, range_bytes
from schemas import storage
from schemas.concurrency import prefetch
from schemas.profile.columns import RAW
from schemas.rejects import Reject, read_rejects
from schemas.rows import RowRange, batch_bytes, list_array, raw_fields
from schemas.spec.forms import RawColumn
from schemas.spec.table import (
    CODES,
    NUMBERS,
    OFFSET,
    SPLIT,
    SPLITS,
    WORDS,
    Schema,
    graph_columns,
    number_columns,
    raw_columns,
    word_columns,
)
from schemas.storage import file_key


def arrow_schema(
    schema: Schema, inputs: Sequence[RawColumn], *, passthrough: bool, statistics: bool = False
) -> pa.Schema:
    """Returns the batches' schema: `list<float32>` and `list<binary>` inputs of a graph, then passthrough columns.

    `statistics`: among these, the raw columns, which tf.Transform hands through as they are.
    """
    fields = raw_fields(inputs)
    if statistics:
        fields += [field.with_name(RAW + field.name) for field in raw_fields(raw_columns(schema))]
    if passthrough:
        fields += [pa.field(name, pa.list_(pa.int64())) for name in PASSTHROUGH]
    return pa.schema(fields)


def graph_arrays(
    batch: pa.RecordBatch, schema: Schema, inputs: Sequence[RawColumn], rows: np.ndarray | None = None
) -> list[pa.ListArray]:
    """Returns the inputs of a graph, of decoded rows, or of some of them."""
    made = _words(batch, schema, rows) if any(column.name == WORDS for column in inputs) else {}
    for column in inputs:
        if column.name not in made:
            values = _numbers(batch, schema) if column.name == NUMBERS else batch.column(column.name)
            made[column.name] = values if rows is None else _taken(values, rows)
    return [made[column.name] for column in inputs]


def _words(batch: pa.RecordBatch, schema: Schema, rows: np.ndarray | None) -> dict[str, pa.ListArray]:
    """CODES and WORDS of all rows, or of some of them."""
    codes, words = [], []
    for column in word_columns(schema):
        cells = batch.column(column.name).flatten()
        encoded = (cells if rows is None else cells.take(pa.array(rows))).dictionary_encode()
        codes.append(np.asarray(encoded.indices))
        words.append(encoded.dictionary)
    count = len(codes[0])
    matrix, together = np.stack(codes, axis=1).astype(np.int64), pa.concat_arrays(words)
    places = pa.array(np.arange(count + 1, dtype=np.int32) * len(codes))
    first = pa.array(np.repeat(np.array([0, len(together)], np.int32), [1, count]))
    return {
        CODES: pa.ListArray.from_arrays(places, pa.array(matrix.reshape(-1))),
        WORDS: pa.ListArray.from_arrays(first, together),
    }


def _numbers(batch: pa.RecordBatch, schema: Schema) -> pa.ListArray:
    columns = number_columns(schema)
    if len(columns) == 1:
        return batch.column(columns[0].name)
    matrix, at = np.empty((batch.num_rows, sum(column.width or 1 for column in columns)), np.float32), 0
    for column in columns:
        width = column.width or 1
        matrix[:, at : at + width] = np.asarray(batch.column(column.name).flatten()).reshape(-1, width)
        at += width
    return list_array(matrix, None)


def train_batch(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch | None:
    """Returns the inputs of the graph, of the rows in the train split; None if there are no such rows."""
    rows = np.flatnonzero(np.asarray(batch.column(SPLIT)) == SPLITS.index("train"))
    if not len(rows):
        return None
    inputs = graph_columns(schema)
    columns = graph_arrays(batch, schema, inputs, rows if len(rows) < batch.num_rows else None)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema, inputs, passthrough=False))


def _taken(column: pa.ListArray, rows: np.ndarray) -> pa.ListArray:
    """Some rows of a raw column of fixed width. Arrow's own `take` of lists needs three times as long."""
    values = column.flatten()
    if pa.types.is_floating(values.type):
        return list_array(np.asarray(values).reshape(len(column), -1), rows)
    return list_array(values, rows)


def keyed_batch(
    batch: pa.RecordBatch, schema: Schema, inputs: Sequence[RawColumn], files: np.ndarray, *, statistics: bool
) -> pa.RecordBatch:
    """Returns all rows with the passthrough columns, as tf.Transform expects them; `files` are their files' keys."""
    columns = graph_arrays(batch, schema, inputs)
    columns += [batch.column(c.name) for c in raw_columns(schema)] if statistics else []
    columns.append(as_lists(files))
    columns += [as_lists(np.asarray(batch.column(name))) for name in (OFFSET, SPLIT)]
    made = arrow_schema(schema, inputs, passthrough=True, statistics=statistics)
    return pa.RecordBatch.from_arrays(columns, schema=made)


class ReadRanges(beam.DoFn):
    """Reads groups of ranges, prefetching one batch; counts records and writes rejects to separate files.

    Ends the job if the reject limit is exceeded even if all remaining records are valid.
    """

    phase: str
    caches: bool  # whether it writes the cache
    reject_outputs: list[beam.pvalue.TaggedOutput]  # for REJECTS: those of the last group

    def __init__(
        self,
        schema: Schema,
        staging: str,
        limit: RejectLimit,
        total: int,
        *,
        cache_dir: str | None = None,
        digests: bool = False,
    ) -> None:
        self.schema = schema
        self.staging = staging
        self.limit = limit
        self.total = total
        self.cache_dir = cache_dir  # caches what the first read decodes; None if the reads may run on other machines
        self.digests = digests  # whether this read, the first of the two, takes the digests of the files
        self.meter = workers.Meter(self.phase)

    def decode(self, group: Group) -> Iterator[InGroup]:
        """Yields the group's batches, during a turn. Its rejects are on disk when this ends, also after an error."""
        self.reject_outputs = []
        rejects: list[Reject] = []
        piece = group[0].file.path, group[0].start
        shortest = max(1, min(part.file.min_record_bytes for part in group))
        unknown = any(part.file.gzip for part in group)  # how many records remain
        sizes = [range_bytes(part) for part in group]
        size, consumed = sum(sizes), 0
        workers.report_begun(self.staging)
        progress.JOB.enter(self.phase)
        progress.JOB.begin(piece)
        path = None if self.cache_dir is None else cache_path(self.cache_dir, group)
        try:
            with contextlib.nullcontext() if path is None else claimed(path), TURN:
                for part, decoded in prefetch(self.read(group, path)):
                    rejects += decoded.rejects
                    so_far = sum(sizes[:part]) + min(decoded.consumed, sizes[part])
                    progress.JOB.add(
                        piece, read=decoded.read, rejected=len(decoded.rejects), consumed=max(0, so_far - consumed)
                    )
                    consumed = max(consumed, so_far)
                    self.meter.add(read=decoded.read, rejected=len(decoded.rejects))
                    if not unknown:
                        to_come = max(0, self.total - progress.JOB.counters.done) // shortest
                        give_up_if_certain(self.limit, progress.JOB.counters.read + to_come)
                    yield part, decoded
            progress.JOB.add(piece, done=size, consumed=size - consumed)
            self.meter.add(done=size)
        finally:
            self.reject_outputs += write_rejects(self.staging, rejects, phase=self.phase)

    def read(self, group: Group, path: str | None) -> Iterator[InGroup]:
        """Reads a group from its cache file, or decodes it if there is none."""
        if path is not None and os.path.exists(path):
            return read_cache(path)
        decoded = decode(group, self.schema, digests=self.digests)
        return write_through(path, decoded) if path is not None and self.caches else decoded


class Tally:
    """The records of a group that were read, and those that were rejected, range by range."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.read = [0] * len(group)
        self.rejects: list[list[Reject]] = [[] for _ in group]
        self.distinct_numbers: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.digests: list[tuple[RowRange, Mapping[int, str]]] = []

    def counting(self, decoded: Iterable[InGroup]) -> Iterator[InGroup]:
        """Yields the batches, and counts them."""
        for place, batch in decoded:
            self.read[place] += batch.read
            self.rejects[place] += batch.rejects
            for column, (before, after) in batch.distinct_numbers.items():
                index, _, name = column.partition(" ")
                self.distinct_numbers[index, NUMBERS_WRITTEN, name] += before
                self.distinct_numbers[index, NUMBERS_LEFT, name] += after
            if batch.digests:
                self.digests.append((self.group[place], batch.digests))
            yield place, batch

    def digested(self) -> Iterator[beam.pvalue.TaggedOutput]:
        """Yields, for COUNTS, the digests of the files' blocks."""
        for part, digests in self.digests:
            yield from digested(file_key(part.file.path), digests)

    def counted(self) -> Iterator[beam.pvalue.TaggedOutput]:
        """Yields, for COUNTS, the records."""
        for part, read, rejects in zip(self.group, self.read, self.rejects, strict=True):
            key = file_key(part.file.path)
            yield from counted(key, read=read, rejects=rejects)
            yield count(key, COVERED, "", part.covers)
        for observed in self.distinct_numbers.items():
            yield beam.pvalue.TaggedOutput(COUNTS, observed)


class ReadForAnalysis(ReadRanges):
    """A group of ranges -> RecordBatches of a graph's inputs, of the train split. Side output: COUNTS of digests."""

    phase = "analyzing"
    caches = True

    def process(self, group: Group) -> Iterator[object]:
        tally = Tally(group)
        for rows, _ in joined(tally.counting(self.decode(group)), group, most_bytes=batch_bytes(self.schema)):
            batch = train_batch(rows, self.schema)
            if batch is not None:
                yield batch
        if self.digests:
            yield from tally.digested()


class ReadForTransform(ReadRanges):
    """A group of ranges -> RecordBatches of all rows with the passthrough columns.

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
        inputs: Sequence[RawColumn],
        parity_threshold: int | None,
        cache_dir: str | None = None,
        caches: bool = False,
        statistics: bool = False,
        digests: bool = False,
    ) -> None:
        super().__init__(schema, staging, limit, total, cache_dir=cache_dir, digests=digests)
        self.caches = caches
        self.inputs = inputs  # of the transform's graph
        self.parity_threshold = parity_threshold
        self.statistics = statistics

    def process(self, group: Group) -> Iterator[object]:
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        keys = np.array([file_key(part.file.path) for part in group], np.int64)
        tally = Tally(group)
        for rows, parts in joined(tally.counting(self.decode(group)), group, most_bytes=batch_bytes(self.schema)):
            files, offsets = keys[parts], np.asarray(rows.column(OFFSET))
            batch = keyed_batch(rows, self.schema, self.inputs, files, statistics=self.statistics)
            chosen = parity.choose_rows(files, offsets, self.parity_threshold)
            if len(chosen):
                features = rows.select([c.name for c in raw_columns(self.schema)]).take(pa.array(chosen))
                for i, example in zip(chosen.tolist(), RecordBatchToExamples(features), strict=True):
                    yield beam.pvalue.TaggedOutput(PARITY, ((int(files[i]), int(offsets[i])), example))
            yield batch
        yield from tally.counted()
        if self.digests:
            yield from tally.digested()
        yield from self.reject_outputs


class CollectProfiles(beam.DoFn):
    """None, with the transform's RejectFiles as side input -> STATISTICS and LEAKAGE of a job that has children."""

    def __init__(self, work: SharedWork) -> None:
        self.work = work

    def process(self, _: None, late: Sequence[RejectFile]) -> Iterator[beam.pvalue.TaggedOutput]:
        rejects = (reject for file in late for reject in read_rejects(storage.read_bytes(file.path)))
        places = ((file_key(reject.source), reject.offset) for reject in rejects)
        for tag, profile in findings_of(self.work.observe_all(places)):
            yield beam.pvalue.TaggedOutput(tag, profile)
