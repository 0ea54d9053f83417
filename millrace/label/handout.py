"""Hands labelled rows out, each once: a short transaction assigns rows to an output, and they stay assigned.

The output is written from its rows after that, so a run that was killed is completed by the next one, with the same
bytes. Rows are assigned some thousand at a time, so that a server can store requests in between.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from millrace.label.labels import CONFLICT, Labels, spelled
from millrace.store.database import transaction
from millrace.store.rows import ID, Layout
from schemas import interrupts
from schemas.formats import text

ROWS_AT_ONCE = 4000


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
      labels, duplicate_labels, conflicting_keys, unmatched_labels: rows of labels; those that repeat what was known;
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


def hand_out(
    database: sqlite3.Connection,
    layout: Layout,
    key: str,
    labels: Labels,
    output: int,
    reading: Callable[[int, float | None], None],
) -> Joined:
    """Assigns the stored rows whose label is known, and that have none yet, to an output.

    Args:
      database: the store's requests.
      layout: of their raw values.
      key: the column that says which request a label is of, or `_id`.
      labels: the labels.
      output: the number of the output.
      reading: is told how many rows were read, and which share of all.
    """
    (count,) = database.execute("SELECT count(*) FROM requests").fetchone()
    joined = Joined(stored=count)
    several_lines = layout.csv.quoted_newlines or layout.images
    read = 0
    for rows in _batches(database):
        interrupts.check()
        keys = _keys(rows, layout, key)
        known = labels.find(list({each for each in keys if each is not None}))
        assigned: list[tuple[str, int, int]] = []
        for row, row_key in zip(rows, keys, strict=True):
            label = None if row_key is None else known.get(row_key)
            if row["output"] is not None:
                joined.before += 1
                joined.contradicted += label not in (None, CONFLICT, row["label"])
            elif label is None:
                joined.unlabelled += 1
            elif label == CONFLICT:
                joined.conflicting += 1
            elif row["error"]:
                joined.not_predicted += 1
            elif not several_lines and (row["line"].count(b"\n") > 1 or "\\n" in label):
                joined.not_writable += 1
            else:
                assigned.append((label, output, row["number"]))
        if assigned:
            with transaction(database):
                database.executemany("UPDATE requests SET label = ?, output = ? WHERE number = ?", assigned)
        joined.written += len(assigned)
        read += len(rows)
        reading(read, read / max(count, 1))
    joined.labels, joined.duplicate_labels, joined.conflicting_keys = labels.rows, labels.duplicates, labels.conflicts
    joined.invalid_labels, joined.examples, joined.unmatched_labels = labels.invalid, labels.examples, labels.unused()
    return joined


def _batches(database: sqlite3.Connection) -> Iterator[Sequence[sqlite3.Row]]:
    """The stored rows, in their order. Each batch is a query of its own, since a long one would hold up the log."""
    last = -1
    query = "SELECT number, id, line, error, label, output FROM requests WHERE number > ? ORDER BY number LIMIT ?"
    while rows := database.execute(query, (last, ROWS_AT_ONCE)).fetchall():
        last = rows[-1]["number"]
        yield rows


def _keys(rows: Sequence[sqlite3.Row], layout: Layout, key: str) -> list[bytes | None]:
    """The key of each row; None for a row that could not be read."""
    if key == ID:
        return [row["id"].encode() for row in rows]
    lines = [row["line"] for row in rows]
    values = iter(text.trimmed(layout.cells([line for line in lines if line])[key]).to_pylist())
    return [spelled(key, next(values)) if line else None for line in lines]
