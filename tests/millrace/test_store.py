"""The store of requests: on disk before it returns, each id once, through kills, full disks and clocks that jump."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from millrace.store import database
from millrace.store.writer import DAY, RequestStore, ServedBatch, StoredAnswers
from schemas.errors import MillraceError, UsageError
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE
from tests.support.model_server import PATIENCE
from tests.support.processes import until
from tests.support.stored_requests import SCHEMA, late_batch, stored_rows


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "store"


def opened(folder: Path, **settings) -> RequestStore:
    return RequestStore(str(folder), SCHEMA, schema_yaml=LATE.encode(), **settings)


def store(folder: Path, *batches: ServedBatch, **settings) -> list[StoredAnswers]:
    """Opens a store, stores some batches, and closes it: what each is answered with."""
    opening = opened(folder, **settings)
    try:
        return [opening.submit(batch).result() for batch in batches]
    finally:
        opening.close()


def ids(folder: Path) -> list[str]:
    return [row["id"] for row in stored_rows(folder)]


def test_what_is_stored_of_a_request(folder):
    store(folder, late_batch(["r1"], age=30.5, share=0.75))
    (row,) = stored_rows(folder)
    assert row == {
        "number": 1,
        "id": "r1",
        "from_client": 1,
        "key": b"r1",
        "line": b'30.5,0,"a","r1"\n',
        "sent": None,
        "answer": b'{"class":"yes","class_id":1,"probabilities":[0.25,0.75],"logits":[0.0]}',
        "error": b"",
        "model": "7",
        "received": 1.8e9,
        "answered": 1.8e9 + 0.01,
        "label": None,
        "output": None,
    }


def test_a_row_that_could_not_be_read_is_stored_as_it_was_sent(folder):
    batch = dataclasses.replace(late_batch(["r1", "r2"]), sent={1: b'{"age": "old"}'})
    first, again = store(folder, batch, batch)
    assert [(row["line"] != b"", row["sent"]) for row in stored_rows(folder)] == [
        (True, None),
        (False, b'{"age": "old"}'),
    ]
    assert again.outputs["error"].tolist() == first.outputs["error"].tolist() == [b"", b""]


def test_files_are_for_this_user_alone(folder):
    folder.mkdir(mode=0o755)
    store(folder, late_batch(["a"]))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_id_gets_its_stored_answer_and_is_stored_once(folder, restart):
    """Whatever the model says now, and whatever else it answers now; also bytes that are not UTF-8."""
    first, then = late_batch(["a", "b"], share=0.75), late_batch(["c", "b"], share=0.125)
    first.outputs["class"][1] = b"\xff yes"
    then = dataclasses.replace(then, outputs={**then.outputs, "new": np.ones((2, 3), np.float32)})
    answers = [*store(folder, first), *store(folder, then)] if restart else store(folder, first, then)
    outputs = answers[1].outputs
    assert outputs["class"].tolist() == [b"no", b"\xff yes"]
    assert outputs["class_id"].tolist() == [0, 1]
    assert outputs["probabilities"].tolist() == [[0.875, 0.125], [0.25, 0.75]]
    assert outputs["logits"].tolist() == [[0.0], [0.0]]
    assert np.isnan(outputs["new"][:, 0]).tolist() == [False, True]
    assert outputs["error"].tolist() == [b"", b""]
    assert ids(folder) == ["a", "b", "c"]


def test_an_id_with_other_values_gets_an_error_and_harms_nobody_else(folder):
    _, answer = store(folder, late_batch(["a"]), late_batch(["a", "b"], age=99))
    assert b"is the id of another request" in answer.outputs["error"][0]
    assert (answer.outputs["class"].tolist(), list(answer.versions)) == ([b"", b"no"], ["", "7"])
    assert ids(folder) == ["a", "b"]


def test_the_same_id_twice_in_a_batch_is_stored_once(folder):
    batch = late_batch(["a", "b"])
    batch.columns["hours"][:] = 0
    batch.columns["id"][:] = b"same"
    store(folder, dataclasses.replace(batch, ids=["a", "a"]))
    assert ids(folder) == ["a"]


def test_ids_that_the_server_makes_are_not_looked_up(folder):
    store(folder, *[late_batch(["a"], ids_from_client=False)] * 2)
    assert ids(folder) == ["a", "a"]


def test_many_threads_store_each_row_once(folder):
    stored = opened(folder)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: stored.submit(late_batch([f"{i}/0", f"{i}/1"])).result(), range(100)))
    stored.close()
    assert sorted(ids(folder)) == sorted(f"{i}/{k}" for i in range(100) for k in range(2))
    assert stored.counts.rows == 200


@pytest.fixture
def blocked_commit(monkeypatch):
    """The database takes rows only once this event is set; the number of commits that were begun."""
    insert, go_on = database.insert, threading.Event()
    begun: list[int] = []

    def insert_later(connection, rows, images):
        begun.append(len(rows))
        assert go_on.wait(PATIENCE)
        insert(connection, rows, images)

    monkeypatch.setattr(database, "insert", insert_later)
    return go_on, begun


def test_what_gathers_during_a_commit_is_committed_at_once(folder, blocked_commit):
    go_on, begun = blocked_commit
    stored = opened(folder)
    answers = [stored.submit(late_batch(["0"]))]
    until(lambda: begun)
    answers += [stored.submit(late_batch([str(i)])) for i in (1, 2)]
    assert [answer.done() for answer in answers] == [False] * 3
    go_on.set()
    stored.close()
    assert begun == [1, 2]
    assert ids(folder) == ["0", "1", "2"]


def test_a_damaged_file_is_named(folder):
    store(folder, late_batch(["0"]))
    for path in folder.glob("requests.sqlite*"):
        path.unlink()
    (folder / "requests.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(MillraceError, match="store: file is not a database; the requests were not stored"):
        opened(folder)


def test_another_version_is_refused_by_its_number(folder):
    store(folder, late_batch(["0"]))
    with contextlib.closing(sqlite3.connect(folder / "requests.sqlite")) as connection:
        connection.execute("PRAGMA user_version=7")
    with pytest.raises(UsageError, match="is of version 7, and this release reads version 1"):
        opened(folder)


def test_a_network_file_system_is_refused(folder, monkeypatch):
    monkeypatch.setattr(database, "file_system", lambda path: "nfs4")
    with pytest.raises(UsageError, match="is on nfs4, where SQLite cannot keep its promises; use a local disk"):
        opened(folder)


def test_the_file_system_of_a_path_is_that_of_the_deepest_mount():
    assert database.file_system("/proc/self") == "proc"


def test_one_process_writes(folder):
    stored = opened(folder)
    with pytest.raises(UsageError, match="another server writes there"):
        opened(folder)
    stored.close()
    opened(folder).close()


def test_a_folder_with_something_else_is_refused(folder):
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds 'notes"):
        opened(folder)


@pytest.fixture
def always_looking(monkeypatch) -> None:
    """Requests that are too old are looked for with each batch."""
    monkeypatch.setattr("millrace.store.writer.RETENTION_SECONDS", 0.0)


@pytest.mark.usefixtures("always_looking")
def test_requests_of_old_days_are_removed_with_their_ids(folder):
    """Those of the future, by a clock that jumped back since, are not."""
    now = time.time()
    stored = opened(folder, retain_days=2)
    for name, at in (("old", now - 4 * DAY), ("new", now - DAY), ("future", now + 400 * DAY)):
        stored.submit(late_batch([name], at=at)).result()
    stored.submit(late_batch(["old"], at=now)).result()
    stored.close()
    assert ids(folder) == ["new", "future", "old"]


@pytest.mark.parametrize(
    ("part", "other"), [("name: hours", "name: minutes"), ("{header: present}", "{header: present, missing: ['?']}")]
)
def test_requests_of_another_form_are_refused(folder, part, other):
    store(folder, late_batch(["a"]))
    schema_yaml = LATE.replace(part, other).encode()
    with pytest.raises(UsageError, match="holds requests of a schema with other columns, another delimiter or other"):
        RequestStore(str(folder), parse_schema(schema_yaml, "s.yaml"), schema_yaml=schema_yaml)
    store(folder, late_batch(["b"]))
    assert ids(folder) == ["a", "b"]


def test_a_full_disk_stores_nothing_of_a_batch_and_goes_on_when_there_is_room(folder):
    """A limit of SQLite's own on the file's size stands for the disk's."""
    stored = opened(folder)
    stored.submit(late_batch(["a"])).result()
    (pages,) = stored._database.execute("PRAGMA page_count").fetchone()
    stored._database.execute(f"PRAGMA max_page_count={pages}")
    large = late_batch([f"b{i}" for i in range(1000)])
    for _ in range(2):
        with pytest.raises(MillraceError, match="database or disk is full; the requests were not stored"):
            stored.submit(large).result()
    assert ids(folder) == ["a"]
    stored._database.execute("PRAGMA max_page_count=1000000")
    stored.submit(large).result()
    stored.close()
    assert len(ids(folder)) == 1001
