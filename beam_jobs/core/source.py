"""What a job is to read, opened and checked: the same few questions for every kind of raw data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from schemas.dataset import Dataset
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input that records are counted by: a CSV file, or a whole listing of images."""

    path: str
    bytes: int
    version: str
    encoding: str | None = None  # of a CSV file
    header: tuple[str, ...] | None = None  # of a CSV file that has one
    covers: int | None = None  # what its reading has to go through: bytes of a CSV file, images or pairs; None: unknown


class Inputs(Protocol):
    """The raw data of one job."""

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
        """About how large the data set will be."""

    @property
    def estimated_rows(self) -> int:
        """About how many records there are; rather too many than too few."""

    def shares(self) -> dict[str, float]:
        """Each split's share of the data."""

    def preprocessing_fn(self) -> Any:
        """The tf.Transform `preprocessing_fn` that the schema implies."""

    def write_graphs(self, run_dir: str) -> None:
        """Writes what the run's folder holds beside shards and transform: the ingest graph of images."""

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        """Applies the steps from raw data to encoded records."""

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """The rejected records' raw bytes, read again from the input, each file once at most where it is a stream."""

    def misfit_of(self, other: Dataset) -> str | None:
        """Why another data set's transform cannot be applied to this data, to be told of it; None where it can."""
