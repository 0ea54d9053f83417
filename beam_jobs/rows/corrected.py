"""Corrected records in the pipeline: read like ranges of their files, which may be gone."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from beam_jobs.core.source import Chosen
from beam_jobs.rows.groups import Group, InGroup
from beam_jobs.rows.read import ReadForTransform
from schemas.dataset.input_files import KnownInput
from schemas.formats import row_format
from schemas.rows import RowFile
from schemas.spec.table import Schema

RECORDS_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class CorrectedRecords:
    """Corrected records of one file with their offsets. Implements `schemas.rows.RowRange`."""

    file: RowFile
    raws: tuple[bytes, ...]
    offsets: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.offsets[0]

    @property
    def end(self) -> int:
        return self.start + self.covers

    @property
    def covers(self) -> int:
        return sum(map(len, self.raws))


def corrected_records(
    schema: Schema, inputs: Mapping[str, KnownInput], records: Sequence[Chosen]
) -> Iterator[CorrectedRecords]:
    """Groups records, sorted by file and offset, into parts of one file each.

    Args:
        schema: the schema of the dataset.
        inputs: the input files of the dataset that rejected the records.
        records: the corrected records.
    """
    for path, group in itertools.groupby(records, key=lambda record: record.was.source):
        known = inputs[path]
        file = row_format(schema).file_from_manifest(path, schema, encoding=known.encoding, header=known.header)
        rows = list(group)
        for i in range(0, len(rows), RECORDS_AT_ONCE):
            some = rows[i : i + RECORDS_AT_ONCE]
            yield CorrectedRecords(file, tuple(r.raw for r in some), tuple(r.was.offset for r in some))


class ReadCorrected(ReadForTransform):
    """A group of CorrectedRecords -> the same output as `ReadForTransform`."""

    def read(self, group: Group) -> Iterator[InGroup]:
        for place, part in enumerate(group):
            assert isinstance(part, CorrectedRecords)  # noqa: S101 - a replay has no other ranges
            yield place, row_format(self.schema).decode_records(part.file, self.schema, part.raws, part.offsets)
