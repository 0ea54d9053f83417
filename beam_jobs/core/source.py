"""The seam between a job and its raw data: what a kind of raw data has to answer, for a job and for a replay.

There are two kinds, rows (`beam_jobs.rows`, of any format in `schemas.formats`) and images (`beam_jobs.images`);
`beam_jobs.runtime.sources` chooses one by the schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from beam_jobs.core.options import JobOptions
from schemas.dataset import Dataset
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input that records are counted by: a file of rows, or a whole listing of images."""

    path: str
    bytes: int
    version: str
    encoding: str | None = None  # of a file of rows
    header: tuple[str, ...] | None = None  # of a file of rows that has one
    covers: int | None = None  # what its reading has to go through: bytes of rows, images or pairs; None: unknown


class Source(Protocol):
    """The raw data of one job, listed or opened, and checked against the schema."""

    @property
    def schema(self) -> AnySchema:
        """What the data is."""

    @property
    def schema_text(self) -> bytes:
        """The schema file, as it was read."""

    @property
    def files(self) -> tuple[InputFile, ...]:
        """What records are counted by."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes by id, where they are known before the data is read; else none."""

    @property
    def total(self) -> int:
        """How much there is to read, in the units that progress is counted in: bytes or images."""

    @property
    def estimated_bytes(self) -> int:
        """About how large the dataset will be."""

    @property
    def estimated_rows(self) -> int:
        """About how many records there are; rather too many than too few."""

    def shares(self) -> dict[str, float]:
        """Each split's share of the data."""

    def preprocessing_fn(self) -> Any:
        """The tf.Transform `preprocessing_fn` that the schema implies."""

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """Writes what describes the raw data in the run's folder: raw features of rows, the ingest graph of images.

        `transform_from`: the run folder whose transform is applied, and whose ingest graph; None: measure one.
        """

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        """Applies the steps from raw data to encoded records."""

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """The rejected records' raw bytes, read again from the input, each file once at most where it is a stream."""

    def incompatibility(self, other: Dataset) -> str | None:
        """Why another dataset's transform cannot be applied to this data, as a clause about it; None if it can."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A reject that is tried again, and its corrected bytes."""

    was: Reject
    raw: bytes

    @property
    def key(self) -> tuple[str, int]:
        return self.was.source, self.was.offset


class ReplaySource(Protocol):
    """Corrected rejects of one dataset as the raw data of a replay."""

    @property
    def encodings(self) -> Mapping[str, str] | None:
        """By input file, in which a corrected record is encoded; None where what is fixed is a file that is named."""

    def check(self, records: Sequence[Chosen]) -> None:
        """Looks at what can be told of corrected records before anything is read.

        Raises:
          UsageError: one names what cannot be an input.
        """

    def steps(self, pipeline: beam.Pipeline, plan: Plan, records: Sequence[Chosen]) -> Steps:
        """Applies the steps from corrected records to encoded ones."""


@dataclasses.dataclass(frozen=True)
class RawFiles:
    """What a job was given to read.

    Attributes:
      options: the job's options; messages name `schema` and `input`.
      schema_text: the bytes of the schema file.
      paths: the input files, each once.
      duplicates: (path that is read, other path of the same file), for files that are named more than once.
      report: called with notes about the input.
    """

    options: JobOptions
    schema_text: bytes
    paths: Sequence[str]
    duplicates: Sequence[tuple[str, str]]
    report: Callable[[Sequence[str]], None]


S = TypeVar("S", bound=AnySchema)


@dataclasses.dataclass(frozen=True)
class SourceKind(Generic[S]):
    """How one kind of raw data is opened. Nothing heavy is imported for it; both raise UsageError for wrong input."""

    open: Callable[[S, RawFiles], Source]
    open_replay: Callable[[S, Dataset], ReplaySource]
