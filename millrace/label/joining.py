"""Joins labels to stored requests, and hands each labelled row to one output.

A run notes its output in the store. It assigns the labelled rows to it, some thousand in a transaction, so that a
server can store requests in between. Then it writes the output from the assigned rows. A run that was killed is
completed by the same command, with the same bytes.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from millrace.label.labels import load_labels
from millrace.label.outputs import write_images, write_table
from millrace.store.database import LABELLING, connect, store_errors
from millrace.store.layout import ID, RequestLayout
from schemas import interrupts, storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.loader import AnySchema, parse_schema
from schemas.spec.table import Schema
from schemas.storage import folders

_ROWS_AT_ONCE = 4000
_VERDICT = """
CASE
    WHEN requests.output = :output THEN 'written'
    WHEN requests.output > 0 AND NOT labels.conflicts AND labels.cells != requests.label THEN 'contradicted'
    WHEN requests.output > 0 THEN 'before'
    WHEN labels.key IS NULL THEN 'unlabelled'
    WHEN labels.conflicts THEN 'conflicting'
    WHEN requests.error != x'' OR requests.line = x'' THEN 'not_predicted'
    WHEN :one_line AND instr(requests.line, x'0a') < length(requests.line) THEN 'not_writable'
    ELSE 'written'
END
"""
_RANGE = "requests.number > :start AND requests.number <= :end"


@dataclasses.dataclass(frozen=True)
class JoinedLabels:
    """What came of a run.

    Attributes:
      file: the new rows; None: there are none.
      counts: `stored` rows, each in one of `written`, `before`, `contradicted`, `unlabelled`, `conflicting`,
        `not_predicted` and `not_writable`; `labels` read, and of these `invalid_labels`; `unmatched_labels` by key.
      examples: the file, the line and the reason of the first labels that cannot be used.
    """

    file: str | None
    counts: Mapping[str, int]
    examples: Sequence[str]


def join_labels(store: str, labels: Sequence[str], output: str) -> JoinedLabels:
    """Joins labels to the stored requests that have none yet.

    Args:
      store: the folder of the requests.
      labels: files of labels, or globs.
      output: the new file of labelled rows; of images the folder of the classes.

    Raises:
      UsageError: no store, a file that exists already, or files of labels that lack a column.
      MillraceError: another `millrace label` is at work on the store.
    """
    with _opened(store) as (database, schema, layout):
        key, counts, examples = load_labels(database, storage.expand(labels), schema, layout)
        storage.check_apart(labels, output)
        number, last = _begin(database, output, images=layout.images)
        counts += _assign(database, layout, key, number, last)
        if not counts["written"]:
            database.execute("DELETE FROM outputs WHERE number = ?", (number,))
            return JoinedLabels(None, counts, examples)
        if isinstance(schema, Schema):
            write_table(_assigned(database, number), output, schema, layout)
        else:
            write_images(_assigned(database, number), output, layout, database)
        _finish(database, number)
        return JoinedLabels(os.path.abspath(output), counts, examples)


def write_requests(store: str, output: str) -> int:
    """Writes the raw values of all stored requests to a file, with a header. Returns how many there are.

    Raises:
      UsageError: no store, one of images, or a file that exists already.
    """
    with _opened(store) as (database, _, layout):
        if layout.images:
            raise UsageError(f"{store}: holds images, which are not written to a file; give files of labels")
        if os.path.lexists(output):
            raise UsageError(f"--output {output}: exists already; give another file")
        count = 0
        with storage.wrap_errors(output), open(output, "xb") as file:
            file.write(text.header_line(layout.names, layout.csv))
            for (line,) in database.execute("SELECT line FROM requests WHERE line != x'' ORDER BY number"):
                file.write(line)
                count += 1
    return count


@contextlib.contextmanager
def _opened(store: str) -> Iterator[tuple[sqlite3.Connection, AnySchema, RequestLayout]]:
    """Opens the requests of a store for one `millrace label` at a time, with the schema that is served."""
    with (
        store_errors(store, "nothing was labelled"),
        contextlib.closing(connect(store)) as database,
        folders.locked(os.path.join(store, LABELLING)) as is_free,
    ):
        if not is_free:
            raise MillraceError(f"{store}: another `millrace label` is at work there; run the command again later")
        if not database.execute("SELECT count(*) FROM (SELECT 1 FROM requests LIMIT 1)").fetchone()[0]:
            raise UsageError(f"{store}: holds no requests")
        (yaml,) = database.execute("SELECT yaml FROM served").fetchone()
        schema = parse_schema(yaml, f"{store}: the schema of the last requests")
        yield database, schema, RequestLayout.of(schema)


def _begin(database: sqlite3.Connection, output: str, *, images: bool) -> tuple[int, int]:
    """Returns the number of the output, and of the last request that is looked at for it.

    Raises:
      UsageError: the file exists already, or another output was not completed.
    """
    path = os.path.abspath(output)
    pending = database.execute("SELECT number, last, path FROM outputs WHERE finished = 0").fetchone()
    if pending is not None:
        if pending["path"] != path:  # no path that was read from a file is written to unasked
            raise UsageError(
                f"an earlier run was interrupted while it handed rows to {pending['path']}; run it again with --output "
                f"{pending['path']} first, which completes it"
            )
        return pending["number"], pending["last"]
    if not images and os.path.lexists(path):
        raise UsageError(f"--output {output}: exists already; give another file")
    storage.NewFile(os.path.join(path, "image") if images else path).close()  # fails before rows wait for the file
    query = "INSERT INTO outputs (path, last) SELECT ?, max(number) FROM requests RETURNING number, last"
    ((number, last),) = database.execute(query, (path,)).fetchall()
    return number, last


def _assign(
    database: sqlite3.Connection, layout: RequestLayout, key: str, output: int, last: int
) -> collections.Counter[str]:
    """Assigns labelled rows to an output, with their labels. Returns the counts of rows."""
    counts: collections.Counter[str] = collections.Counter()
    stored_key = "CAST(requests.id AS BLOB)" if key == ID else "requests.key"
    assign = f"""UPDATE requests SET label = labels.cells, output = :output FROM labels
        WHERE {_RANGE} AND labels.key = {stored_key} AND requests.output IS NULL AND {_VERDICT} = 'written'"""  # noqa: S608 - of this module
    match = f"UPDATE labels SET matched = 1 WHERE key IN (SELECT {stored_key} FROM requests WHERE {_RANGE})"  # noqa: S608 - of this module
    count = f"""SELECT {_VERDICT}, count(*) FROM requests LEFT JOIN labels ON labels.key = {stored_key}
        WHERE {_RANGE} GROUP BY 1"""  # noqa: S608 - of this module
    (start,) = database.execute("SELECT coalesce(min(number), 1) - 1 FROM requests").fetchone()
    for number in range(start, last, _ROWS_AT_ONCE):
        interrupts.check()
        values = {"output": output, "one_line": not (layout.csv.quoted_newlines or layout.images)}
        values |= {"start": number, "end": min(number + _ROWS_AT_ONCE, last)}
        for statement in (assign, match):
            database.execute(statement, values)
        counts.update(dict(database.execute(count, values).fetchall()))
    counts["stored"] = counts.total()
    (counts["unmatched_labels"],) = database.execute("SELECT count(*) FROM labels WHERE NOT matched").fetchone()
    return counts


def _finish(database: sqlite3.Connection, output: int) -> None:
    database.execute("UPDATE outputs SET finished = 1 WHERE number = ?", (output,))


def _assigned(database: sqlite3.Connection, output: int) -> Iterator[Sequence[sqlite3.Row]]:
    """Yields the rows of an output. Each batch is a query of its own: a long one would hold up the store's log."""
    query = "SELECT number, line, label FROM requests WHERE output = ? AND number > ? ORDER BY number LIMIT ?"
    last = -1
    while rows := database.execute(query, (output, last, _ROWS_AT_ONCE)).fetchall():
        last = rows[-1]["number"]
        yield rows
