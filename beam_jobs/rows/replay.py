"""The replay source for rows: corrected records, decoded one by one, then processed like all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from beam_jobs.core.inputs import InputFile
from beam_jobs.core.source import Chosen
from schemas import storage
from schemas.dataset import Dataset
from schemas.dataset.input_files import KnownInput, read_inputs
from schemas.errors import UsageError
from schemas.spec.table import Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class RowReplay:
    """Implements `beam_jobs.core.source.ReplaySource`; `known` are the inputs of the dataset that rejected records."""

    schema: Schema
    known: Mapping[str, KnownInput]

    @property
    def encodings(self) -> Mapping[str, str]:
        return {path: file.encoding for path, file in self.known.items()}

    def check(self, records: Sequence[Chosen]) -> None:
        """Does nothing: invalid records are found when they are decoded."""

    def inputs(self, records: Sequence[Chosen]) -> list[InputFile]:
        paths = {record.was.source for record in records}
        return sorted((InputFile(storage.file_key(path), path, 0, "") for path in paths), key=lambda file: file.key)

    def steps(self, pipeline: beam.Pipeline, plan: Plan, records: Sequence[Chosen]) -> Steps:
        from beam_jobs.rows.pipeline import row_steps
        from beam_jobs.rows.ranges import GivenRanges
        from beam_jobs.rows.read import ReadCorrected, corrected_records

        ranges = GivenRanges(tuple(corrected_records(self.schema, self.known, records)))
        return row_steps(pipeline, plan, schema=self.schema, ranges=ranges, read=ReadCorrected)


def replay_rows(schema: Schema, base: Dataset) -> RowReplay:
    """The replay source for rejected rows of a dataset.

    Raises:
      UsageError: the manifest does not describe the layout of the input files.
    """
    known = {}
    for part in read_inputs(base.path, base.manifest):
        for file in part.inputs:
            if file.encoding is None:
                raise UsageError(
                    f"--append_to {base.path}: was written by a version that did not store the layout of the input "
                    "files. Write the dataset again."
                )
            known[file.path] = KnownInput(file.encoding, part.header_of(file))
    return RowReplay(schema, known)
