"""The exported model in a worker's process: loaded once, whichever bundles and threads ask for it."""

from __future__ import annotations

import dataclasses
import threading

from schemas import storage
from schemas.dataset.opening import sha256
from schemas.errors import MillraceError
from schemas.exports.model import ServedModel, on_local_disk
from schemas.exports.notes import NOTES_PATH, check_files, read_notes


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
