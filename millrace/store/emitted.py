"""Which stored rows have been written with their label: exactly once, through kills and however often labels come.

Each run writes its rows under a temporary name, then a note of which rows these are (`.labels/<n>.pending`), then gives
the rows their name, and then the note (`.done`). Rows whose note is pending have their name already, or get it from
their temporary file, or were never written.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import zlib
from collections.abc import Iterator

import numpy as np

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders
from schemas.storage.json_files import read_object

FOLDER = ".labels"
PENDING, DONE = ".pending", ".done"


class Emitted:
    """The rows that an output folder has received. One process at a time.

    Attributes:
      labels: by segment, the CRC-32 of each row's label, plus 1; 0: the row has none yet.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self._folder = os.path.join(output, FOLDER)
        self.labels: dict[str, np.ndarray] = {}
        self._new: dict[str, list[np.ndarray]] = {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Takes the folder, completes what a killed run left, and reads the notes."""
        with storage.wrap_errors(self._output):
            folders.make(self._folder)
            handle = os.open(self._folder, os.O_RDONLY)
            try:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise MillraceError(f"{self._output}: another `millrace label` writes there") from None
                self._complete()
                for name in self._notes(DONE):
                    self._read(os.path.join(self._folder, name))
                yield
            finally:
                os.close(handle)

    def codes(self, token: str, place: int, rows: int) -> np.ndarray:
        """The CRC-32 of the label that each of some rows has received in earlier runs, plus 1; 0: none."""
        known = self.labels.get(token, np.zeros(0, np.int64))[place : place + rows]
        return np.concatenate([known, np.zeros(rows - len(known), np.int64)])

    def add(self, token: str, places: np.ndarray, codes: np.ndarray) -> None:
        """Notes that rows receive their labels in this run; `codes`: of `label_code`."""
        self._new.setdefault(token, []).append(np.stack([places, codes]))

    def next_number(self) -> int:
        """Of the next run."""
        return max((int(name.partition(".")[0]) for name in self._notes("")), default=0) + 1

    def commit(self, number: int, temporary: str, final: str) -> None:
        """Gives a run's rows their name; `temporary` is complete and flushed. Empty names: the rows are in place."""
        note = os.path.join(self._folder, f"{number:06d}")
        entry = {
            "temporary": os.path.basename(temporary),
            "file": os.path.basename(final),
            "rows": {token: _packed(np.concatenate(parts, axis=1)) for token, parts in self._new.items()},
        }
        storage.write_bytes(note + PENDING, json.dumps(entry).encode() + b"\n")
        self._finish(note, temporary, final)

    def _finish(self, note: str, temporary: str, final: str) -> None:
        if final:
            os.rename(temporary, final)
            storage.sync_folder(self._output)
        os.rename(note + PENDING, note + DONE)
        storage.sync_folder(self._folder)

    def _complete(self) -> None:
        """Completes what a killed run left, or removes it."""
        pending = self._notes(PENDING)
        for name in pending:
            path = os.path.join(self._folder, name)
            entry = read_object(path, "the rows that received their labels")
            names = [str(entry.get(name, "")) for name in ("temporary", "file")]
            if any(os.path.basename(name) != name for name in names):
                raise MillraceError(f"{path}: names {', '.join(names)[:200]}; expected files of {self._output}")
            temporary, final = (os.path.join(self._output, name) for name in names)
            note = path.removesuffix(PENDING)
            if names[1] and os.path.exists(temporary):
                self._finish(note, temporary, final)
            else:  # it has its name, under which it may have been taken away since
                self._finish(note, "", "")
        for name in storage.listdir(self._output):
            if name.startswith(".") and name.endswith(".labelling"):
                storage.delete(os.path.join(self._output, name))

    def _notes(self, ending: str) -> list[str]:
        names = storage.listdir(self._folder)
        return [name for name in names if name.endswith(ending) and name.endswith((PENDING, DONE))]

    def _read(self, path: str) -> None:
        entry = read_object(path, "the rows that received their labels")
        for token, packed in entry["rows"].items():
            places, codes = _unpacked(packed)
            known = self.labels.get(token, np.zeros(0, np.int64))
            size = max(len(known), int(places.max(initial=-1)) + 1)
            grown = np.zeros(size, np.int64)
            grown[: len(known)] = known
            grown[places] = codes
            self.labels[token] = grown


def label_code(label: bytes) -> int:
    """What is remembered of a label."""
    return zlib.crc32(label) + 1


def _packed(rows: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(rows.astype("<i8").tobytes())).decode()


def _unpacked(packed: str) -> tuple[np.ndarray, np.ndarray]:
    both = np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<i8").reshape(2, -1)
    return both[0], both[1]
