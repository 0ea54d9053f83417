"""Which stored rows receive which label, and what is counted of all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from schemas import interrupts, storage
from schemas.errors import UsageError
from trainer.request_store.columns import ERROR
from trainer.request_store.emitted import Emitted, label_code
from trainer.request_store.known_labels import KnownLabels, Label
from trainer.request_store.options import LABELLED
from trainer.request_store.reading import StoredRow, StoredSegment


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """What is joined.

    Attributes:
      store: the folder of stored requests.
      join: CSV files with labels.
      on: the column of both that holds the key; None: the request's id if the labels have it, else the schema's key.
      output: the folder for labelled rows; what it has received it receives no more.
      name: of its files; {} is their number.
    """

    store: str
    join: tuple[str, ...]
    on: str | None = None
    output: str
    name: str = LABELLED

    def __post_init__(self) -> None:
        if "{}" not in self.name or "/" in self.name:
            raise UsageError(f"--name {self.name}: a file name in which {{}} stands for the number, such as {LABELLED}")
        for path in (self.store, self.output):
            if not storage.is_local(path):
                raise UsageError(f"{path}: must be on local disk")


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


def labelled_rows(
    segments: Sequence[StoredSegment], on: str, known: KnownLabels, emitted: Emitted, joined: Joined
) -> Iterator[tuple[str, StoredRow, Label]]:
    """The stored rows that receive their label now, each with its segment's token; counts all others."""
    for segment in segments:
        for rows in segment.groups():
            interrupts.check()
            keys = [row.cells[on].strip() for row in rows]
            found = known.find(keys)
            known.mark([key for key in keys if key in found])
            joined.stored += len(rows)
            for row, key in zip(rows, keys, strict=True):
                before = emitted.label_of(segment.token, row.place)
                label = found.get(key)
                joined.before += before > 0
                if label is None:
                    joined.unlabelled += not before
                elif label.conflict:
                    joined.conflicting += not before
                elif before:
                    joined.contradicted += before != label_code(label.values[0])
                elif row.cells[ERROR]:
                    joined.not_predicted += 1
                else:
                    yield segment.token, row, label
