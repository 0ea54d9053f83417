"""The replay source for rows: corrected records, decoded one by one, then processed like all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from beam_jobs.core.source import Chosen
from schemas.dataset import Dataset
from schemas.dataset.manifest import Manifest
from schemas.errors import UsageError
from schemas.spec.table import Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class RowReplay:
    """Implements `beam_jobs.core.source.ReplaySource`; `manifest` is of the dataset that rejected the records."""

    schema: Schema
    manifest: Manifest

    @property
    def encodings(self) -> Mapping[str, str]:
        return {file.path: file.encoding or "utf-8" for file in self.manifest.inputs}

    def check(self, records: Sequence[Chosen]) -> None:
        """Does nothing: invalid records are found when they are decoded."""

    def steps(self, pipeline: beam.Pipeline, plan: Plan, records: Sequence[Chosen]) -> Steps:
        from beam_jobs.rows.corrected import ReadCorrected, corrected_records
        from beam_jobs.rows.pipeline import row_steps

        parts = list(corrected_records(self.schema, self.manifest, records))
        paths = list(dict.fromkeys(record.was.source for record in records))
        return row_steps(pipeline, plan, schema=self.schema, ranges=parts, paths=paths, read=ReadCorrected)


def replay_rows(schema: Schema, base: Dataset) -> RowReplay:
    """The replay source for rejected rows of a dataset.

    Raises:
      UsageError: the manifest does not describe the layout of the input files.
    """
    if any(file.encoding is None for file in base.manifest.inputs):
        raise UsageError(
            f"--append_to {base.path}: was written by a version that did not store the layout of the input files. "
            "Write the dataset again."
        )
    return RowReplay(schema, base.manifest)
