"""Files of rows of any format as a job's input, and corrected rows of a replay."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.inputs import InputFile, Keeping, StagedInputs, stage_listing
from beam_jobs.core.source import Chosen, RawFiles
from beam_jobs.rows.vocabulary_advice import vocabulary_advice
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.input_files import KnownInput, read_inputs
from schemas.errors import UsageError
from schemas.formats import row_format
from schemas.rejects import Reject
from schemas.rows import RowFile
from schemas.spec.split_hash import file_split
from schemas.spec.table import SPLITS, FileSplit, Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.source import Plan, Steps


GROWTH = {False: 1.5, True: 6.0}  # estimated output bytes per input byte, to size shards: plain and gzip'd files
SAMPLED = 100  # files that are opened before the job begins; the others are opened on the workers


@dataclasses.dataclass(frozen=True)
class RowSource:
    """Implements `beam_jobs.core.source.Source`.

    Attributes:
        listing: all files.
        sample: some of them, opened: a random sample, or all if they are few.
        split_bytes: for a split by file, the bytes of each split's files.
    """

    schema: Schema
    schema_text: bytes
    listing: storage.Listing
    sample: tuple[RowFile, ...]
    split_bytes: Mapping[str, int]
    range_bytes: int
    max_input_ratio: float
    classes: tuple[str, ...] = ()  # always empty: the transform has them

    def stage(self, folder: str) -> StagedInputs:
        return stage_listing(folder, self.listing)

    @property
    def total(self) -> int:
        return self.listing.bytes

    @property
    def estimated_bytes(self) -> int:
        return int(self._estimate(lambda file: file.size * GROWTH[file.gzip]))

    @property
    def estimated_rows(self) -> int:
        """Assumes that a record is twice as long as the shortest possible one."""
        return int(
            self._estimate(lambda file: file.size * (4 if file.gzip else 1) // (2 * max(file.min_record_bytes, 1)))
        )

    def _estimate(self, amount: Callable[[RowFile], float]) -> float:
        """The sum of an amount over all files: exact if all are in the sample, else in proportion to their bytes."""
        of_sample = sum(map(amount, self.sample))
        if len(self.sample) == len(self.listing):
            return of_sample
        return of_sample * self.total / max(1, sum(file.size for file in self.sample))

    def shares(self) -> dict[str, float]:
        """The fractions in the schema; for a split by file, the files' share of the bytes."""
        split = self.schema.split
        if not isinstance(split, FileSplit):
            return {name: getattr(split, name) for name in split.splits}
        return {name: max(size, 1) / max(self.total, 1) for name, size in self.split_bytes.items()}

    def preprocessing_fn(self, keeping: Keeping | None = None) -> Any:
        from beam_jobs.transform.preprocessing import Preprocessing

        return Preprocessing(self.schema, keeping)

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
        from beam_jobs.rows.ranges import FileRanges

        ranges = FileRanges(plan.inputs, self.schema, self.range_bytes, self.max_input_ratio)
        return row_steps(pipeline, plan, schema=self.schema, ranges=ranges)

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        offsets: dict[str, list[int]] = {}
        for reject in rejects:
            offsets.setdefault(reject.source, []).append(reject.offset)
        found: dict[tuple[str, int], bytes] = {}
        versions = {file.path: file.version for file in self.listing if file.path in offsets}
        for path, places in offsets.items():
            file = open_row_file(path, self.schema, self.max_input_ratio)
            storage.check_version(path, versions[path], file.version)
            raws = row_format(self.schema).read_records(file, self.schema, places)
            found |= {(path, offset): raw for offset, raw in raws.items()}
        return [found[r.source, r.offset] for r in rejects]

    def incompatibility(self, other: Dataset) -> str | None:
        """None if features and label are equal; the file format and the split may differ."""
        if not isinstance(other.declared, Schema):
            return f"is of format {other.declared.format}"
        if (other.schema.features, other.schema.label) == (self.schema.features, self.schema.label):
            return None
        return "was written with other features or another label"


def open_rows(schema: Schema, raw: RawFiles) -> RowSource:
    """Opens a sample of the files, which reads their beginnings.

    Raises:
      UsageError: a file of the sample does not match the schema, or any file belongs to no split, or has a name that is
        not UTF-8.
    """
    raw.listing.check_names()
    ratio, range_bytes = raw.options.max_input_ratio, int(raw.options.range_mb * 2**20)
    sizes: dict[str, int] = {}
    if isinstance(schema.split, FileSplit):
        sizes = dict.fromkeys(schema.split.splits, 0)
        for file in raw.listing:
            sizes[SPLITS[file_split(file.path, schema.split)]] += file.size
    # The listing is in the order of a hash, so its beginning is a random sample.
    paths = sorted(file.path for file in itertools.islice(raw.listing, SAMPLED))
    sample = tuple(open_row_file(path, schema, ratio) for path in paths)
    if raw.options.transform_from is None and raw.options.preprocessing_fn is None:
        raw.report(list(vocabulary_advice(schema, sample, raw.listing.bytes)))
    return RowSource(schema, raw.schema_text, raw.listing, sample, sizes, range_bytes, ratio)


def open_row_file(path: str, schema: Schema, max_input_ratio: float) -> RowFile:
    """Opens a file of a job, which has a label."""
    file: RowFile = row_format(schema).open_file(path, schema, label="required", max_input_ratio=max_input_ratio)
    return file


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
