"""Files of rows of any format as a job's input, and rejected rows that were corrected."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.inputs import InputFile, StagedInputs, stage_inputs, stage_listing
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import Chosen, Described, JobInput
from beam_jobs.rows.children import Children, SharedWork, workers_by_default
from beam_jobs.rows.groups import CorrectedRecords, Group, grouped, units_of
from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.dataset.manifest import KnownInput, read_inputs
from schemas.formats import check_not_empty, row_format
from schemas.profile.columns import columns_of
from schemas.profile.leakage import watched_rows
from schemas.rejects import Reject
from schemas.rows import RowFile
from schemas.spec.differences import difference
from schemas.spec.split_hash import file_split
from schemas.spec.table import SPLITS, FileSplit, Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.source import PipelinePlan, SourceOutputs


GROWTH = {False: 1.5, True: 6.0}  # estimated output bytes per input byte, to size shards: plain and gzip'd files
SAMPLED = 100  # files that are opened before the job begins; the others are opened on the workers
RECORDS_AT_ONCE = 1000  # corrected ones
SAMPLED_HERE = 1000  # files of this machine, where that takes a second


@dataclasses.dataclass(frozen=True)
class RowSource:
    """Implements `beam_jobs.core.source.JobSource`.

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

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups that the pipeline reads, in order; none for more files than the sample has, opened inside it."""
        if len(self.sample) < len(self.listing):
            return ()
        opened = {file.path: file for file in self.sample}
        plan = row_format(self.schema).plan_ranges
        parts = (plan(opened[file.path], range_bytes=self.range_bytes) for file in self.listing)
        return tuple(grouped(itertools.chain.from_iterable(parts)))

    def children(self, folder: str, options: JobOptions) -> Children:
        """Starts the processes that work on the groups beside this one; their cache is in a local folder."""
        count = workers_by_default(self.total) if options.workers is None else options.workers
        groups = self.groups if count > 1 else ()
        work = self._work(folder, groups, statistics=options.statistics, leakage=options.leakage)
        return Children(work, children=min(count - 1, len(work.divisible())))

    def _work(self, folder: str, groups: tuple[Group, ...], *, statistics: bool, leakage: bool) -> SharedWork:
        return SharedWork(
            self.schema,
            folder,
            groups,
            units=tuple(units_of(groups)) if statistics or leakage else (),
            described=columns_of(self.schema) if statistics else None,
            watched=watched_rows(self.schema) if leakage else None,
        )

    def preprocessing_fn(self) -> Any:
        from beam_jobs.transform.preprocessing import Preprocessing

        return Preprocessing(self.schema)

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """Writes what the graph takes as a tensorflow_metadata Schema in text format."""
        import tensorflow_transform as tft
        from google.protobuf import text_format

        from beam_jobs.transform.preprocessing import input_spec
        from schemas.dataset.records import graph_inputs
        from schemas.spec.table import graph_columns

        inputs = graph_columns(self.schema) if transform_from is None else graph_inputs(transform_from, self.schema)
        metadata = tft.DatasetMetadata.from_feature_spec(input_spec(inputs))
        text = text_format.MessageToString(metadata.schema)
        storage.write_bytes(layout.join(run_dir, layout.SCHEMA_PBTXT), text.encode())

    def steps(self, pipeline: beam.Pipeline, plan: PipelinePlan) -> SourceOutputs:
        from beam_jobs.rows.pipeline import row_steps
        from beam_jobs.rows.ranges import FileRanges

        ranges = FileRanges(plan.inputs, self.schema, self.range_bytes, self.max_input_ratio)
        groups = self.groups if plan.cache_dir is not None else ()
        work = self._work(plan.cache_dir or "", groups, statistics=plan.statistics, leakage=plan.leakage)
        return row_steps(pipeline, plan, schema=self.schema, ranges=ranges, work=work)

    def described(self, inputs: StagedInputs) -> Described:
        return DescribedRows(self.schema, self.schema_text, self.max_input_ratio, inputs)

    def incompatibility(self, other: OpenDataset) -> str | None:
        """None if features and label are equal; the file format and the split may differ."""
        if not isinstance(other.declared, Schema):
            return f"is of format {other.declared.format}"
        if (other.schema.features, other.schema.label) == (self.schema.features, self.schema.label):
            return None
        same = {"csv": self.schema.csv, "split": self.schema.split, "name": self.schema.name}
        described = difference(
            other.schema.model_copy(update=same), self.schema, called=("that dataset", "this schema")
        )
        return f"was written with other features or another label ({described})"


@dataclasses.dataclass(frozen=True)
class DescribedRows:
    """Implements `beam_jobs.core.source.Described` for files of rows."""

    schema: Schema
    schema_text: bytes
    max_input_ratio: float
    inputs: StagedInputs
    classes: tuple[str, ...] = ()  # always empty: the transform has them

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        offsets: dict[str, list[int]] = {}
        for reject in rejects:
            offsets.setdefault(reject.source, []).append(reject.offset)
        raw_by_place: dict[tuple[str, int], bytes] = {}
        for listed in storage.Listing((path, storage.stat(path)) for path in offsets):
            path, places = listed.path, offsets[listed.path]
            (staged,) = (file for file in self.inputs.read(self.inputs.part_of(listed.key)) if file.path == path)
            file = open_row_file(path, self.schema, self.max_input_ratio)
            storage.check_version(path, staged.version, file.version)
            raws = row_format(self.schema).read_records(file, self.schema, places)
            raw_by_place |= {(path, offset): raw for offset, raw in raws.items()}
        return [raw_by_place[r.source, r.offset] for r in rejects]


def open_rows(schema: Schema, raw: JobInput) -> RowSource:
    """Opens a sample of the files, which reads their beginnings.

    Raises:
      UsageError: a file of the sample does not match the schema, or any file belongs to no split, or has a name that is
        not UTF-8; or there are no records.
    """
    raw.listing.check_names()
    ratio = raw.options.max_input_ratio
    sizes: dict[str, int] = {}
    if isinstance(schema.split, FileSplit):
        sizes = dict.fromkeys(schema.split.splits, 0)
        for file in raw.listing:
            sizes[SPLITS[file_split(file.path, schema.split)]] += file.size
    # The listing is in the order of a hash, so its beginning is a random sample.
    sampled = SAMPLED_HERE if all(map(storage.is_local, raw.options.input)) else SAMPLED
    paths = sorted(file.path for file in itertools.islice(raw.listing, sampled))
    sample = tuple(open_row_file(path, schema, ratio) for path in paths)
    if len(sample) == len(raw.listing):
        check_not_empty(sample)
    return RowSource(schema, raw.schema_text, raw.listing, sample, sizes, int(raw.options.range_mb * 2**20), ratio)


def open_row_file(path: str, schema: Schema, max_input_ratio: float) -> RowFile:
    """Opens a file of a job, which has a label."""
    file: RowFile = row_format(schema).open_file(path, schema, label="required", max_input_ratio=max_input_ratio)
    return file


@dataclasses.dataclass(frozen=True)
class CorrectedRows(RowSource):
    """Rejected rows of a dataset, corrected. The files that they stand in may be gone.

    Attributes:
        corrected: the rows, by file and offset.
        known_inputs: how the files are laid out.
    """

    corrected: tuple[Chosen, ...] = ()
    known_inputs: Mapping[str, KnownInput] = dataclasses.field(default_factory=dict)

    def stage(self, folder: str) -> StagedInputs:
        files = (InputFile(file.key, file.path, 0, "") for file in self.listing)
        return stage_inputs(folder, files, count=len(self.listing))

    def steps(self, pipeline: beam.Pipeline, plan: PipelinePlan) -> SourceOutputs:
        from beam_jobs.rows.pipeline import row_steps
        from beam_jobs.rows.ranges import GivenRanges

        work = self._work("", (), statistics=plan.statistics, leakage=plan.leakage)
        return row_steps(pipeline, plan, schema=self.schema, ranges=GivenRanges(tuple(self._parts())), work=work)

    def _parts(self) -> Iterator[CorrectedRecords]:
        """The records, sorted by file and offset, in parts of one file each."""
        form = row_format(self.schema)
        for path, of_file in itertools.groupby(self.corrected, key=lambda record: record.was.source):
            records, entry = list(of_file), self.known_inputs[path]
            file = form.file_from_manifest(path, self.schema, encoding=entry.encoding, header=entry.header)
            for i in range(0, len(records), RECORDS_AT_ONCE):
                part = records[i : i + RECORDS_AT_ONCE]
                yield CorrectedRecords(file, tuple(r.raw for r in part), tuple(r.was.offset for r in part))

    def described(self, inputs: StagedInputs) -> Described:
        raws = {record.key: record.raw for record in self.corrected}
        return DescribedCorrections(self.schema, self.schema_text, raws)


@dataclasses.dataclass(frozen=True)
class DescribedCorrections:
    """Implements `beam_jobs.core.source.Described` for corrected rows: `raws` are their bytes, by file and offset."""

    schema: Schema
    schema_text: bytes
    raws: Mapping[tuple[str, int], bytes]
    classes: tuple[str, ...] = ()  # always empty: the transform has them

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Returns the corrected bytes of what is rejected again."""
        return [self.raws[reject.source, reject.offset] for reject in rejects]


def known_inputs(base: OpenDataset) -> dict[str, KnownInput]:
    """Returns how the input files of a dataset of rows are laid out, by path."""
    return {
        file.path: KnownInput(file.encoding, part.header_of(file))
        for part in read_inputs(base.path, base.manifest)
        for file in part.inputs
        if file.encoding is not None  # else it holds no record
    }


def correct_rows(
    schema: Schema, base: OpenDataset, inputs: Mapping[str, KnownInput], corrected: tuple[Chosen, ...]
) -> CorrectedRows:
    """Returns rejected rows of a dataset, whose bytes were corrected, to be decoded again.

    Args:
        schema: the dataset's.
        base: the dataset.
        inputs: see `known_inputs`.
        corrected: the rows, by file and offset.
    """
    sizes: collections.Counter[str] = collections.Counter()
    for record in corrected:
        sizes[record.was.source] += len(record.raw)
    listing = storage.Listing((path, storage.FileStat(size, "")) for path, size in sizes.items())
    text = storage.read_bytes(layout.join(base.run_dir, layout.SCHEMA_YAML))
    split_bytes = dict.fromkeys(schema.split_names, 1)
    return CorrectedRows(schema, text, listing, (), split_bytes, 0, 1.0, corrected=corrected, known_inputs=inputs)
