"""The source for files of rows of any format."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.source import InputFile, RawFiles
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.formats import row_format
from schemas.rejects import Reject
from schemas.rows import RowFile
from schemas.spec.split_hash import file_split
from schemas.spec.table import SPLITS, FileSplit, Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps

GROWTH = {False: 1.5, True: 6.0}  # estimated output bytes per input byte, to size shards: plain and gzip'd files


@dataclasses.dataclass(frozen=True)
class RowSource:
    """Implements `beam_jobs.core.source.Source`."""

    schema: Schema
    schema_text: bytes
    row_files: tuple[RowFile, ...]
    range_bytes: int
    classes: tuple[str, ...] = ()  # always empty: the transform has them

    @property
    def files(self) -> tuple[InputFile, ...]:
        return tuple(InputFile(f.path, f.size, f.version, f.codec, f.header, f.covers) for f in self.row_files)

    @property
    def total(self) -> int:
        return sum(file.size for file in self.row_files)

    @property
    def estimated_bytes(self) -> int:
        return int(sum(file.size * GROWTH[file.gzip] for file in self.row_files))

    @property
    def estimated_rows(self) -> int:
        """Assumes that a record is twice as long as the shortest possible one."""
        sizes = (file.size * (4 if file.gzip else 1) // (2 * max(file.min_record_bytes, 1)) for file in self.row_files)
        return sum(sizes)

    def shares(self) -> dict[str, float]:
        """The fractions in the schema; for a split by file, the files' share of the bytes."""
        split = self.schema.split
        if not isinstance(split, FileSplit):
            return {name: getattr(split, name) for name in split.splits}
        sizes = dict.fromkeys(split.splits, 0)
        for file in self.row_files:
            sizes[SPLITS[file_split(file.path, split)]] += file.size
        return {name: max(size, 1) / max(self.total, 1) for name, size in sizes.items()}

    def preprocessing_fn(self) -> Any:
        from beam_jobs.transform.preprocessing import Preprocessing

        return Preprocessing(self.schema)

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """Writes the raw features as a tensorflow_metadata Schema in text format."""
        import tensorflow_transform as tft
        from google.protobuf import text_format

        from beam_jobs.transform.preprocessing import raw_feature_spec

        metadata = tft.DatasetMetadata.from_feature_spec(raw_feature_spec(self.schema))
        text = text_format.MessageToString(metadata.schema)
        storage.write_bytes(layout.join(run_dir, layout.SCHEMA_PBTXT), text.encode())

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        from beam_jobs.rows.pipeline import row_steps

        rows = row_format(self.schema)
        ranges = [r for f in self.row_files for r in rows.plan_ranges(f, range_bytes=self.range_bytes)]
        paths = [f.path for f in self.row_files]
        return row_steps(pipeline, plan, schema=self.schema, ranges=ranges, paths=paths)

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        offsets: dict[str, list[int]] = {}
        for reject in rejects:
            offsets.setdefault(reject.source, []).append(reject.offset)
        found: dict[tuple[str, int], bytes] = {}
        for file in self.row_files:
            if file.path in offsets:
                raws = row_format(self.schema).read_records(file, self.schema, offsets[file.path])
                found |= {(file.path, offset): raw for offset, raw in raws.items()}
        return [found[r.source, r.offset] for r in rejects]

    def incompatibility(self, other: Dataset) -> str | None:
        """None if features and label are equal; the file format and the split may differ."""
        if not isinstance(other.declared, Schema):
            return f"is of format {other.declared.format}"
        if (other.schema.features, other.schema.label) == (self.schema.features, self.schema.label):
            return None
        return "was written with other features or another label"


def open_rows(schema: Schema, raw: RawFiles) -> RowSource:
    """Opens every file, which reads its beginning.

    Raises:
      UsageError: a file does not match the schema, or belongs to no split.
    """
    ratio, range_bytes = raw.options.max_input_ratio, int(raw.options.range_mb * 2**20)
    rows = row_format(schema)
    files = tuple(rows.open_file(path, schema, label="required", max_input_ratio=ratio) for path in raw.paths)
    if isinstance(schema.split, FileSplit):
        for path in raw.paths:
            file_split(path, schema.split)
    return RowSource(schema, raw.schema_text, files, range_bytes)
