"""Groups of ranges of files -> shards of predictions; counts every record and stores every reject."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core import progress
from beam_jobs.core.accounting import COUNTS, REJECTS, WRITTEN, RejectFile, write_reject_file
from beam_jobs.core.counting import counted, covered
from beam_jobs.predicting.served import served
from beam_jobs.predicting.work import PREDICTED, Work, at_end
from beam_jobs.rows.ranges import Group, InGroup, joined
from beam_jobs.rows.read import ReadRanges
from schemas.concurrency import map_in_order
from schemas.exports.model import RAW, WITHOUT_KEY
from schemas.exports.rows import PredictedRows, RowPredictor, with_raw_bytes
from schemas.formats import row_format
from schemas.predictions.encoding import OFFSET
from schemas.rejects import Reject
from schemas.spec.table import Schema
from schemas.storage import file_key


class PredictRows(ReadRanges):
    """A group of ranges -> nothing; at the bundle's end, the shards that were written.

    Side outputs: (CountKey, rows) in COUNTS, RejectFile in REJECTS.
    """

    phase = "predicting"

    def __init__(self, schema: Schema, work: Work) -> None:
        super().__init__(schema, work.staging, work.limit, work.total)
        self.work = work

    def setup(self) -> None:
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="predict")
        self._writer = self.work.writer()

    def teardown(self) -> None:
        self._writer.drop()
        self._pool.shutdown(cancel_futures=True)

    def start_bundle(self) -> None:
        self._writer.drop()  # what an attempt that failed has left

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from at_end(self._writer.close())

    def read(self, group: Group) -> Iterator[InGroup]:
        form = row_format(self.schema)
        for place, part in enumerate(group):
            for decoded in form.read_range(part, self.schema, with_split=False, cells=self.work.pass_through):
                yield place, decoded

    def process(self, group: Group) -> Iterator[beam.pvalue.TaggedOutput]:
        work, form, model = self.work, self.work.form, served(self.work.export)
        signature = WITHOUT_KEY if WITHOUT_KEY in model.signatures else RAW  # keys need not go through the model
        predict = RowPredictor(model, self.schema, work.classes, signature=signature, pass_through=work.pass_through)
        files = [part.file for part in group]

        def answer(batch: pa.RecordBatch, places: np.ndarray) -> tuple[PredictedRows, Any]:
            predicted = predict(batch, files, places)
            return predicted, None if predicted.found is None else form.encode(predicted.found)

        tally = Tally(group)
        piece = group[0].file.path, group[0].start
        batches = self.batches(tally.counting(self.decode(group)), group)
        late: list[tuple[int, Reject]] = []
        answers = map_in_order(self._pool, lambda rows: answer(*rows), batches, max_pending=2 * self._threads)
        for (found, places, refused), encoded in answers:
            if found is not None:
                first = files[int(places[0])].path, found.column(OFFSET)[0].as_py()
                self._writer.write(encoded, found.schema, rows=found.num_rows, first=first)
                tally.predicted += np.bincount(places, minlength=len(group))
            if refused:
                late += refused
                progress.add(piece, rejected=len(refused))
                self.meter.add(rejected=len(refused))
        rejects = with_raw_bytes([reject for _, reject in late], files, self.schema)
        for place, reject in zip((place for place, _ in late), rejects, strict=True):
            tally.rejects[place].append(reject)
        yield from tally.outputs()
        if self.reject_file:
            yield beam.pvalue.TaggedOutput(REJECTS, self.reject_file)
        if rejects:
            file = RejectFile(write_reject_file(self.staging, self.phase, rejects), len(rejects))
            yield beam.pvalue.TaggedOutput(REJECTS, file)

    def batches(self, decoded: Iterator[InGroup], group: Group) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """The rows in batches for the model, and of each row its file's place in the group.

        Those of one file are cut as they are read, and small files are joined.
        """
        one_file = len({part.file.path for part in group}) == 1
        for batch, places in _each(decoded) if one_file else joined(decoded, group):
            for start in range(0, batch.num_rows, self.work.batch_size):
                some = slice(start, start + self.work.batch_size)
                yield batch.slice(start, self.work.batch_size), places[some]


class Tally:
    """What became of the records of a group, range by range."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.read = [0] * len(group)
        self.predicted = np.zeros(len(group), np.int64)
        self.rejects: list[list[Reject]] = [[] for _ in group]

    def counting(self, decoded: Iterable[InGroup]) -> Iterator[InGroup]:
        """The same, counted."""
        for place, some in decoded:
            self.read[place] += some.read
            self.rejects[place] += some.rejects
            yield place, some

    def outputs(self) -> Iterator[beam.pvalue.TaggedOutput]:
        """For COUNTS."""
        for part, read, rows, rejects in zip(self.group, self.read, self.predicted, self.rejects, strict=True):
            key = file_key(part.file.path)
            yield from counted(key, read=read, rejects=rejects)
            yield beam.pvalue.TaggedOutput(COUNTS, ((str(key), WRITTEN, PREDICTED), int(rows)))
            yield covered(key, part.covers)


def _each(decoded: Iterator[InGroup]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    for place, some in decoded:
        if some.batch.num_rows:
            yield some.batch, np.full(some.batch.num_rows, place, np.int32)
