"""Which stored rows receive which label, and what is counted of all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.label.known_labels import CONFLICT, KNOWN, NONE, KnownLabels, Progress
from millrace.store.columns import ERROR
from millrace.store.emitted import Emitted, label_code
from millrace.store.reading import StoredSegment
from schemas import interrupts
from schemas.formats import text


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
