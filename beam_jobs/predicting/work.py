"""What a worker needs to predict: the options that reach it, and the model, which is loaded once a process."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core.accounting import RejectLimit
from beam_jobs.predicting.shards import FORMATS, Format, ShardWriter, WrittenShard
from schemas import storage
from schemas.dataset.opening import sha256
from schemas.errors import MillraceError
from schemas.exports.model import ServedModel, on_local_disk
from schemas.exports.notes import NOTES_PATH, check_files, read_notes
from schemas.predictions.manifest import FormatName


@dataclasses.dataclass(frozen=True)
class ExportRef:
    """An export as the launcher checked it. `sha256`: of its notes, which name the checksums of all its files."""

    path: str
    sha256: str


_loaded: dict[ExportRef, ServedModel] = {}
_loading = threading.Lock()


def served(export: ExportRef) -> ServedModel:
    """The model, which is loaded when this process first asks for it.

    Raises:
      MillraceError: the export has changed since the launcher checked it, or cannot be read.
    """
    with _loading:
        if export not in _loaded:
            _loaded.clear()  # of an earlier job in this process
            with on_local_disk(export.path) as folder:
                _, notes = read_notes(folder)
                if notes_digest(folder) != export.sha256:
                    raise MillraceError(f"{export.path}: was replaced by another export while the job ran; start again")
                check_files(folder, notes)  # what is loaded is what was checked
                _loaded[export] = ServedModel(folder, checked=True, in_callers_thread=True)
        return _loaded[export]


def notes_digest(folder: str) -> str:
    """The SHA-256 of an export's notes."""
    return sha256(storage.join(folder, NOTES_PATH))


PREDICTED = "predicted"  # in the place of a split, where counts have one


@dataclasses.dataclass(frozen=True)
class Work:
    """What a worker needs to predict, beside the input."""

    export: ExportRef
    classes: tuple[str, ...]
    staging: str
    limit: RejectLimit
    total: int
    format: FormatName
    shard_bytes: float
    batch_size: int
    pass_through: tuple[str, ...] = ()

    @property
    def form(self) -> Format:
        """How shards are written."""
        return FORMATS[self.format](self.classes)

    def writer(self) -> ShardWriter:
        """For the shards of one bundle."""
        return ShardWriter(self.staging, self.form, suffix=self.format, shard_bytes=self.shard_bytes)


def at_end(shards: Sequence[WrittenShard]) -> Iterator[WindowedValue]:
    """Shards as outputs of `finish_bundle`."""
    for shard in shards:
        yield WindowedValue(shard, MIN_TIMESTAMP, (GlobalWindow(),))
