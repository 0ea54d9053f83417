"""Corrected records of CSV files in the pipeline: the steps of `beam_jobs.csv.pipeline`, with another source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import apache_beam as beam

from beam_jobs.core.steps import Plan, Steps
from beam_jobs.csv.pipeline import csv_steps
from beam_jobs.csv.read import ReadForTransform
from beam_jobs.replay.corrections import Chosen
from schemas.csv.corrections import CorrectedRecords, decode_records, remembered_csv
from schemas.csv.reader import Decoded
from schemas.dataset.manifest import Manifest
from schemas.spec.table import Schema

RECORDS_AT_ONCE = 1000


class ReadCorrected(ReadForTransform):
    """CorrectedRecords -> what ReadForTransform makes of a range."""

    def read(self, part: CorrectedRecords) -> Iterator[Decoded]:  # type: ignore[override]
        yield decode_records(part.file, self.schema, part.raws, part.offsets)


def replay_csv_steps(
    pipeline: beam.Pipeline, plan: Plan, *, schema: Schema, manifest: Manifest, records: Sequence[Chosen]
) -> Steps:
    """Applies the steps from corrected records to encoded ones. `manifest`: of the data set that rejected them."""
    inputs = {file.path: file for file in manifest.inputs}
    parts = []
    for path, group in itertools.groupby(records, key=lambda r: r.was.source):
        header = inputs[path].header
        file = remembered_csv(
            path,
            schema,
            encoding=inputs[path].encoding or "utf-8",
            header=None if header is None else manifest.headers[header],
        )
        rows = list(group)
        for i in range(0, len(rows), RECORDS_AT_ONCE):
            some = rows[i : i + RECORDS_AT_ONCE]
            parts.append(CorrectedRecords(file, tuple(r.raw for r in some), tuple(r.was.offset for r in some)))
    paths = list(dict.fromkeys(r.was.source for r in records))
    return csv_steps(pipeline, plan, schema=schema, ranges=parts, paths=paths, read=ReadCorrected)
