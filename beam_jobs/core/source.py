"""The interface between a job and its raw data, and what that becomes inside the pipeline.

There are two kinds, rows (`beam_jobs.rows`, of any format in `schemas.formats`) and images (`beam_jobs.images`);
`beam_jobs.runs.run` chooses one by the schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from beam_jobs.core.inputs import StagedInputs
from beam_jobs.core.options import JobOptions, RejectLimit
from schemas import storage
from schemas.dataset import OpenDataset
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.shuffle_plan import ShardOptions


@dataclasses.dataclass(frozen=True)
class KnownIds:
    """The ids of a feature's known values: from `first` up to, and without, `end`. Ids below `first` are padding."""

    first: int
    end: int


@dataclasses.dataclass(frozen=True)
class PipelinePlan:
    """All that the pipeline's construction needs beside the input."""

    run_dir: str  # the transform graph is written here
    temp_dir: str
    inputs: StagedInputs
    total: int  # of the input, in the units that progress is counted in
    limit: RejectLimit
    parity_threshold: int | None  # None: no parity records are kept
    shards: ShardOptions
    preprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None  # None: not needed, with transform_from
    derived: bool  # the transform that is applied is the schema's own, and no function of the user's
    transform_from: str | None  # the run folder whose transform is applied; None: measure one
    statistics: bool = True  # whether statistics of the written records are collected
    known_ids: Mapping[str, KnownIds] = dataclasses.field(default_factory=dict)  # whose unknown values are counted
    leakage: bool = True  # whether leakage between the splits is looked for
    cache_dir: str | None = None  # local folder that caches what the first read decodes; None: decode twice
    observed_apart: bool = False  # whether profiles are collected from that cache, beside the pipeline

    @property
    def staging(self) -> str:
        return self.shards.staging


@dataclasses.dataclass(frozen=True)
class SourceOutputs:
    """The PCollections that a kind of raw data ends in."""

    encoded: beam.PCollection  # of Encoded
    counts: tuple[beam.PCollection, ...]  # of (CountKey, int)
    reject_files: beam.PCollection  # of RejectFile
    late_rejects: beam.PCollection  # of RejectFile, whose rejects' raw bytes are still to be read
    watched: Mapping[str, beam.PCollection]  # what else the result waits for, by argument of `write_result`


class Described(Protocol):
    """What a commit needs to know of the raw data. It is small, and may be sent to a worker."""

    @property
    def schema(self) -> AnySchema:
        """The schema of the data."""

    @property
    def schema_text(self) -> bytes:
        """The schema file, as it was read."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes by id, where they are known before the data is read; else none."""

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Reads the raw bytes of rejected records again; a file that is a stream is read at most once.

        Raises:
          MillraceError: the input has changed, or cannot be read.
        """


class Staged(Protocol):
    """The input of any job."""

    def stage(self, folder: str) -> StagedInputs:
        """Writes the inputs that records are counted by, and what the pipeline reads of a listing, to a folder."""

    @property
    def total(self) -> int:
        """How much there is to read, in the units that progress is counted in: bytes or images."""


class JobSource(Staged, Protocol):
    """The raw data of one job, listed or opened, and checked against the schema."""

    @property
    def schema(self) -> AnySchema:
        """The schema of the data."""

    def described(self, inputs: StagedInputs) -> Described:
        """Returns what the commit needs to know, with the input as it was staged in place of its listing."""

    @property
    def estimated_bytes(self) -> int:
        """About how large the dataset will be."""

    @property
    def estimated_rows(self) -> int:
        """About how many records there are; rather too many than too few."""

    def shares(self) -> dict[str, float]:
        """Each split's share of the data."""

    def preprocessing_fn(self) -> Any:
        """Returns the tf.Transform `preprocessing_fn` that the schema implies."""

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """Writes the description of the raw data to the run's folder: raw features of rows, the ingest graph of images.

        `transform_from`: the run folder whose transform is applied, and whose ingest graph; None: measure one.
        """

    def steps(self, pipeline: beam.Pipeline, plan: PipelinePlan) -> SourceOutputs:
        """Applies the steps from raw data to encoded records."""

    def incompatibility(self, other: OpenDataset) -> str | None:
        """Why another dataset's transform cannot be applied to this data, as a clause about it; None if it can."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A reject that is tried again, and its corrected bytes."""

    was: Reject
    raw: bytes

    @property
    def key(self) -> tuple[str, int]:
        return self.was.source, self.was.offset

    def still_rejected(self, reject: Reject) -> Reject:
        """Returns the reject of a record that is rejected again: its old place, its corrected bytes, its new reason."""
        return dataclasses.replace(reject, source=self.was.source, offset=self.was.offset, raw=self.raw)


@dataclasses.dataclass(frozen=True)
class JobInput:
    """The input of a job.

    Attributes:
      options: the job's: what names the files and the schema, and how files are read.
      schema_text: the bytes of the schema file.
      listing: the input files, each once.
      duplicates: (path that is read, other path of the same file), for files that are named more than once.
      report: called with notes about the input.
      classes: the classes of the images that these join; empty: these define them.
    """

    options: JobOptions
    schema_text: bytes
    listing: storage.Listing
    duplicates: Sequence[tuple[str, str]]
    report: Callable[[Sequence[str]], None]
    classes: tuple[str, ...] = ()


def list_input(
    patterns: Sequence[str], report: Callable[[Sequence[str]], None] = lambda _: None
) -> tuple[storage.Listing, list[tuple[str, str]]]:
    """Lists the input files, each once, and other paths of the same files, which are reported.

    Raises:
      UsageError: a path does not exist, or a glob matches no file.
    """
    listing, duplicates = storage.list_files(patterns)
    report([storage.duplicate_note(path_read, path) for path_read, path in duplicates])
    return listing, duplicates
