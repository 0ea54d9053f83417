"""The manifest of a folder of predictions: from which export and which inputs they are. It is written last."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Count, File, Input, Inside, Shard, Total
from schemas.errors import UsageError
from schemas.spec.forms import Strict
from schemas.storage.json_files import parse_as

FORMAT_VERSION = 1
FormatName = Literal["jsonl", "csv", "parquet", "tfrecord"]


class PredictingExport(Strict):
    """The exported model that predicted."""

    path: str
    sha256: str  # of its notes, which hold the SHA-256 of all its other files
    schema_fingerprint: str
    dataset_run: str
    global_step: int


class PredictionsManifest(Strict):
    """A folder's table of contents. Readers take the shards from here and never glob.

    In the entries of inputs and in counts, what is `written` was predicted.
    """

    kind: Literal["predictions"] = "predictions"
    format_version: Literal[1] = 1
    run: Inside
    created: str
    name: str  # the schema's
    export: PredictingExport
    classes: tuple[str, ...]  # by id, in the order of the probabilities; none for a regression
    format: FormatName
    pass_through: tuple[str, ...]
    batch_size: int
    shards: tuple[Shard, ...]  # in the order of the inputs' names
    files: tuple[File, ...]  # the rejects, and the inputs' entries where they are many
    inputs: tuple[Input, ...]
    headers: tuple[tuple[str, ...], ...] = ()
    input_files: tuple[Inside, ...] = ()
    input_count: int = 0
    totals: tuple[Total, ...] = ()
    counts: tuple[Count, ...]
    read: int
    predicted: int
    rejected: int
    unknown: dict[str, int] = Field(
        default_factory=dict
    )  # by feature, the rows with a value that the model does not know
    previous: tuple[Inside, ...] = ()  # the run that this one replaced, kept for those who still read it
    versions: dict[str, str]
    seconds: float = Field(ge=0)

    @property
    def number_of_inputs(self) -> int:
        """How many inputs there are."""
        return self.input_count if self.input_files else len(self.inputs)

    def to_json(self) -> bytes:
        """Returns the file's bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def read_predictions(folder: str) -> PredictionsManifest:
    """Reads the manifest of a folder of predictions.

    Raises:
      UsageError: there is none, so there are no predictions, or their job has not finished.
      MillraceError: it cannot be read, or is that of a dataset.
    """
    storage.check_scheme(folder)
    layout.check_directory(folder)
    path = layout.join(folder, layout.MANIFEST)
    if not storage.exists(path):
        raise UsageError(
            f"{folder}: no {layout.MANIFEST}, so there are no predictions, or their job has not finished. Run "
            "`python -m beam_jobs.predict` with this folder as --output."
        )
    data = storage.read_bytes(path)
    return parse_as(PredictionsManifest.model_validate_json, data, path, FORMAT_VERSION, "predictions", "predict again")
