"""CSV files as a job's input."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.source import InputFile
from schemas.csv.file import CsvFile, open_csv, split_ranges
from schemas.csv.lookup import read_records
from schemas.dataset import Dataset
from schemas.rejects import Reject
from schemas.spec.split_hash import file_split
from schemas.spec.table import SPLITS, FileSplit, Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps

GROWTH = {False: 1.5, True: 6.0}  # output bytes per input byte, a guess to size shards by, for plain and gzip'd files


@dataclasses.dataclass(frozen=True)
class CsvInputs:
    """See `beam_jobs.core.source.Inputs`."""

    schema: Schema
    schema_text: bytes
    csv_files: tuple[CsvFile, ...]
    range_bytes: int
    classes: tuple[str, ...] = ()  # the transform holds them

    @property
    def files(self) -> tuple[InputFile, ...]:
        return tuple(InputFile(f.path, f.size, f.version, f.codec, f.header, f.covers) for f in self.csv_files)

    @property
    def total(self) -> int:
        return sum(file.size for file in self.csv_files)

    @property
    def estimated_bytes(self) -> int:
        return int(sum(file.size * GROWTH[file.gzip] for file in self.csv_files))

    @property
    def estimated_rows(self) -> int:
        """At two bytes a column."""
        sizes = (file.size * (4 if file.gzip else 1) // (2 * max(file.num_columns, 1)) for file in self.csv_files)
        return sum(sizes)

    def shares(self) -> dict[str, float]:
        """By the schema; by bytes, where files make the splits."""
        split = self.schema.split
        if not isinstance(split, FileSplit):
            return {name: getattr(split, name) for name in split.splits}
        sizes = dict.fromkeys(split.splits, 0)
        for file in self.csv_files:
            sizes[SPLITS[file_split(file.path, split)]] += file.size
        return {name: max(size, 1) / max(self.total, 1) for name, size in sizes.items()}

    def preprocessing_fn(self) -> Any:
        from beam_jobs.transform.preprocessing import Preprocessing

        return Preprocessing(self.schema)

    def write_graphs(self, run_dir: str) -> None:
        """Nothing: rows are decoded without a graph."""

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        from beam_jobs.csv.pipeline import csv_steps

        ranges = [r for f in self.csv_files for r in split_ranges(f, range_bytes=self.range_bytes)]
        paths = [f.path for f in self.csv_files]
        return csv_steps(pipeline, plan, schema=self.schema, ranges=ranges, paths=paths)

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        found: dict[tuple[str, int], bytes] = {}
        for file in self.csv_files:
            offsets = [r.offset for r in rejects if r.source == file.path]
            found |= {(file.path, offset): raw for offset, raw in read_records(file, self.schema, offsets).items()}
        return [found[r.source, r.offset] for r in rejects]

    def misfit_of(self, other: Dataset) -> str | None:
        """None for the same features and label; how files are written and split may differ."""
        if not isinstance(other.declared, Schema):
            return f"is of format {other.declared.format}"
        if (other.schema.features, other.schema.label) == (self.schema.features, self.schema.label):
            return None
        return "was written with other features or another label"


def open_csv_inputs(
    schema: Schema, schema_text: bytes, paths: Sequence[str], *, range_bytes: int, max_input_ratio: float
) -> CsvInputs:
    """Reads the beginning of every file.

    Raises:
      UsageError: a file does not fit the schema, or belongs to no split.
    """
    files = tuple(open_csv(path, schema, max_input_ratio=max_input_ratio) for path in paths)
    if isinstance(schema.split, FileSplit):
        for path in paths:
            file_split(path, schema.split)
    return CsvInputs(schema, schema_text, files, range_bytes)
