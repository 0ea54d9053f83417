"""What a worker needs to predict: the options that reach it, and the model, which is loaded once a process."""

from __future__ import annotations

import dataclasses
import threading
from typing import NamedTuple

from beam_jobs.core.options import RejectLimit
from beam_jobs.predicting.shards import FORMATS, Format, ShardWriter
from schemas import storage
from schemas.dataset.opening import sha256
from schemas.errors import MillraceError
from schemas.exports.model import ServedModel, on_local_disk
from schemas.exports.notes import NOTES_PATH, check_files, read_notes
from schemas.exports.words import KnownValues
from schemas.predictions.manifest import Export, FormatName
from schemas.spec.table import Schema


class Loaded(NamedTuple):
    """A model, and the values that it knows; None for images."""

    model: ServedModel
    known: KnownValues | None


_loaded: dict[tuple[str, str], Loaded] = {}  # by an export's path and the digest of its notes
_loading = threading.Lock()


def served(export: Export) -> Loaded:
    """The model, which is loaded when this process first asks for it.

    Raises:
      MillraceError: the export has changed since the launcher checked it, or cannot be read.
    """
    key = export.path, export.sha256
    with _loading:
        if key not in _loaded:
            _loaded.clear()  # of an earlier job in this process
            with on_local_disk(export.path) as folder:
                schema, notes = read_notes(folder)
                if sha256(storage.join(folder, NOTES_PATH)) != export.sha256:
                    raise MillraceError(f"{export.path}: was replaced by another export while the job ran; start again")
                check_files(folder, notes)  # what is loaded is what was checked
                known = KnownValues(folder, schema) if isinstance(schema, Schema) else None
                _loaded[key] = Loaded(ServedModel(folder, checked=True, in_callers_thread=True), known)
        return _loaded[key]


@dataclasses.dataclass(frozen=True)
class Work:
    """What a worker needs to predict, beside the input."""

    export: Export
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
