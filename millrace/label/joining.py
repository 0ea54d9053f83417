"""Which stored rows receive which label: each exactly once, through kills and however often labels come.

Each run writes its rows under a temporary name, then a note of which rows these are, then gives the rows their name. A
note whose rows still have the temporary name is of a run that was killed in between: they get their name.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.label.known_labels import CONFLICT, KNOWN, NONE, KnownLabels, Progress
from millrace.store.columns import ERROR
from millrace.store.segments import StoredSegment
from schemas import interrupts, storage
from schemas.errors import MillraceError
from schemas.formats import text
from schemas.storage import folders
from schemas.storage.json_files import read_object

FOLDER = ".labels"
UNNAMED = ".labelling"  # the end of the temporary names
NOTES = (".done", ".pending")  # of notes; 0.2.0 wrote the second before a file had its name


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
        with storage.wrap_errors(self._output), folders.locked(self._folder) as is_free:
            if not is_free:
                raise MillraceError(f"{self._output}: another `millrace label` writes there")
            for name in self._notes():
                self._take(os.path.join(self._folder, name))
            for name in storage.listdir(self._output):
                if name.startswith(".") and name.endswith(UNNAMED):
                    storage.delete(os.path.join(self._output, name))
            yield

    def codes(self, token: str, place: int, rows: int) -> np.ndarray:
        """The CRC-32 of the label that each of some rows has received in earlier runs, plus 1; 0: none."""
        known = self.labels.get(token, np.zeros(0, np.int64))[place : place + rows]
        return np.concatenate([known, np.zeros(rows - len(known), np.int64)])

    def add(self, token: str, places: np.ndarray, codes: np.ndarray) -> None:
        """Notes that rows receive their labels in this run; `codes`: of `label_code`."""
        self._new.setdefault(token, []).append(np.stack([places, codes]))

    def next_number(self) -> int:
        """Of the next run."""
        return max((int(name.partition(".")[0]) for name in self._notes()), default=0) + 1

    def commit(self, number: int, temporary: str, final: str) -> None:
        """Gives a run's rows their name; `temporary` is complete and flushed. Empty names: the rows are in place."""
        entry = {
            "temporary": os.path.basename(temporary),
            "file": os.path.basename(final),
            "rows": {
                token: base64.b64encode(zlib.compress(np.concatenate(parts, axis=1).astype("<i8").tobytes())).decode()
                for token, parts in self._new.items()
            },
        }
        note = os.path.join(self._folder, f"{number:06d}{NOTES[0]}")
        storage.write_bytes(note, json.dumps(entry).encode() + b"\n")
        if final:
            self._name(temporary, final)

    def _name(self, temporary: str, final: str) -> None:
        os.rename(temporary, final)
        storage.sync_folder(self._output)

    def _notes(self) -> list[str]:
        return [name for name in storage.listdir(self._folder) if name.endswith(NOTES)]

    def _take(self, path: str) -> None:
        """Reads a note, and completes what a killed run left."""
        entry = read_object(path, "the rows that received their labels")
        names = [str(entry.get(name, "")) for name in ("temporary", "file")]
        if any(os.path.basename(name) != name for name in names):
            raise MillraceError(f"{path}: names {', '.join(names)[:200]}; expected files of {self._output}")
        temporary, final = (os.path.join(self._output, name) for name in names)
        if names[1] and os.path.exists(temporary):  # else it has its name, and may have been taken away since
            self._name(temporary, final)
        for token, packed in entry["rows"].items():
            both = np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<i8").reshape(2, -1)
            known = self.labels.get(token, np.zeros(0, np.int64))
            grown = np.zeros(max(len(known), int(both[0].max(initial=-1)) + 1), np.int64)
            grown[: len(known)] = known
            grown[both[0]] = both[1]
            self.labels[token] = grown


def label_code(label: bytes) -> int:
    """What is remembered of a label."""
    return zlib.crc32(label) + 1


@dataclasses.dataclass
class Joined:
    """What came of a run.

    Attributes:
      file: the new rows; None: there are none.
      stored: rows in the store.
      written: rows that received their label in this run.
      before: rows that have received it in earlier runs.
      unlabelled: rows whose key has no label.
      not_predicted: rows with a label that were given no prediction; preprocessing would reject them.
      contradicted: rows that have received another label than the one they would receive now.
      conflicting: rows whose key has labels that differ; they wait until it has one.
      not_writable: rows with a line end in a value, which the schema's files cannot have.
      invalid_labels: rows of labels that cannot be used; they count as if they were not there.
      examples: the file, the row and the reason of the first of these.
      labels, duplicate_labels, conflicting_keys, unmatched_labels: rows of labels; those that say again what was known;
        keys whose labels differ; keys that no stored row has.
    """

    file: str | None = None
    stored: int = 0
    written: int = 0
    before: int = 0
    unlabelled: int = 0
    not_predicted: int = 0
    contradicted: int = 0
    conflicting: int = 0
    not_writable: int = 0
    labels: int = 0
    duplicate_labels: int = 0
    conflicting_keys: int = 0
    unmatched_labels: int = 0
    invalid_labels: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)

    def count(self, known: KnownLabels) -> None:
        """Takes the counts of all labels, once the rows are joined."""
        self.labels, self.duplicate_labels, self.conflicting_keys = known.rows, known.duplicates, known.conflicts
        self.invalid_labels, self.examples, self.unmatched_labels = known.invalid, known.examples, known.unused()


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Stored rows of a segment that receive their label now.

    Attributes:
      token: of the segment.
      places: of the rows in it, int64 `[rows]`.
      columns: their cells by column, binary `[rows]`, and those that come with the label.
      codes: `label_code` of each label, int64 `[rows]`.
    """

    token: str
    places: np.ndarray
    columns: Mapping[str, pa.BinaryArray]
    codes: np.ndarray

    def where(self, chosen: np.ndarray) -> Labelled:
        """Some of these rows."""
        columns = {name: column.filter(pa.array(chosen)) for name, column in self.columns.items()}
        return Labelled(self.token, self.places[chosen], columns, self.codes[chosen])


def labelled_rows(
    segments: Sequence[StoredSegment],
    on: str,
    known: KnownLabels,
    names: Sequence[str],
    emitted: Emitted,
    joined: Joined,
    progress: Progress,
) -> Iterator[Labelled]:
    """The stored rows that receive their label now; counts all others. `names`: of the columns that labels bring."""
    for segment in segments:
        for rows in segment.groups():
            interrupts.check()
            progress(len(rows), rows.size)
            found = known.find(text.trimmed(rows.columns[on]))
            before = emitted.codes(segment.token, rows.place, len(rows))
            codes = np.array([label_code(values[0]) for values in found.values] or [0], np.int64)[found.which]
            new, has = before == 0, found.state == KNOWN
            predicted = pc.equal(pc.binary_length(rows.columns[ERROR]), 0).to_numpy(zero_copy_only=False)
            joined.stored += len(rows)
            joined.before += int((~new).sum())
            joined.unlabelled += int((new & (found.state == NONE)).sum())
            joined.conflicting += int((new & (found.state == CONFLICT)).sum())
            joined.contradicted += int((~new & has & (before != codes)).sum())
            joined.not_predicted += int((new & has & ~predicted).sum())
            chosen = new & has & predicted
            if chosen.any():
                labels = [found.values[i] for i in found.which[chosen].tolist()]
                given = [pa.array(column, pa.binary()) for column in zip(*labels, strict=True)]
                columns = {name: column.filter(pa.array(chosen)) for name, column in rows.columns.items()}
                columns |= dict(zip(names, given, strict=True))
                yield Labelled(segment.token, rows.place + np.flatnonzero(chosen), columns, codes[chosen])
