"""The store of requests: on disk before it returns, each id once, through kills, full disks and clocks that jump."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from millrace.store.ids import Ids
from millrace.store.options import StoreOptions
from millrace.store.segments import read_journal, stored_segments
from millrace.store.store import DAY, RequestStore
from schemas.errors import MillraceError, UsageError
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE
from tests.support.stored_requests import CLASSES, SCHEMA, late_batch


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "store"


def opened(folder: Path, **settings) -> RequestStore:
    clock = {"clock": settings.pop("clock")} if "clock" in settings else {}
    options = StoreOptions(path=str(folder), **settings)
    return RequestStore(options, SCHEMA, classes=CLASSES, schema_yaml=LATE.encode(), **clock)


def rows(folder: Path) -> list[dict[str, bytes]]:
    return [dict(row.cells) for segment in stored_segments(str(folder)) for group in segment.groups() for row in group]


def ids(folder: Path) -> list[str]:
    return [row["_id"].decode() for row in rows(folder)]


def test_what_is_stored_of_a_request(folder):
    store = opened(folder)
    store.append(late_batch(["r1"], age=30.5, share=0.75))
    store.close()
    (row,) = rows(folder)
    assert row["_check"]
    assert {name: cell for name, cell in row.items() if name not in ("_check", "_answered")} == {
        "id": b"r1",
        "age": b"30.5",
        "hours": b"0",
        "work": b"a",
        "_id": b"r1",
        "_prediction": b"yes",
        "_probabilities": b"0.25 0.75",
        "_error": b"",
        "_model": b"7",
        "_received": b"2027-01-15T08:00:00.000000Z",
        "_sent": b"",
    }


def test_files_are_for_this_user_alone(folder):
    folder.mkdir(mode=0o755)
    store = opened(folder)
    store.append(late_batch(["a"]))
    store.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_id_gets_its_stored_answer_and_is_stored_once(folder, restart):
    store = opened(folder)
    store.append(late_batch(["a", "b"], share=0.75))
    if restart:
        store.close()
        store = opened(folder)
    answer = store.append(late_batch(["c", "b"], share=0.25))
    store.close()
    assert answer["class"].tolist() == [b"no", b"yes"]
    assert answer["error"].tolist() == [b"", b""]
    assert ids(folder) == ["a", "b", "c"]


def test_the_stored_answer_stands_whatever_the_model_says_now(folder):
    store = opened(folder)
    store.append(late_batch(["a"], share=0.75))
    answer = store.append(late_batch(["a"], share=0.125))
    store.close()
    assert answer["class"].tolist() == [b"yes"]
    assert answer["class_id"].tolist() == [1]
    assert answer["probabilities"].tolist() == [[0.25, 0.75]]
    assert np.isnan(answer["logits"]).all()  # which are not stored
    assert len(rows(folder)) == 1


def test_an_id_with_other_values_gets_an_error_and_harms_nobody_else(folder):
    store = opened(folder)
    store.append(late_batch(["a"]))
    answer = store.append(late_batch(["a", "b"], age=99))
    store.close()
    assert b"is the id of another request" in answer["error"][0]
    assert answer["class"].tolist() == [b"", b"no"]
    assert ids(folder) == ["a", "b"]


def test_the_same_id_twice_in_a_batch_is_stored_once(folder):
    batch = late_batch(["a", "b"])
    batch.columns["hours"][:] = 0
    batch.columns["id"][:] = b"same"
    store = opened(folder)
    store.append(dataclasses.replace(batch, ids=["a", "a"]))
    store.close()
    assert ids(folder) == ["a"]


def test_ids_that_the_server_makes_are_not_looked_up(folder):
    store = opened(folder)
    for _ in range(2):
        store.append(late_batch(["a"], given=False))
    store.close()
    assert ids(folder) == ["a", "a"]


def test_many_threads_store_each_row_once(folder):
    store = opened(folder, segment_bytes=5000)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: store.append(late_batch([f"{i}/0", f"{i}/1"])), range(100)))
    counts = store.counts
    store.close()
    assert sorted(ids(folder)) == sorted(f"{i}/{k}" for i in range(100) for k in range(2))
    assert counts.rows == 200
    assert counts.flushes < 200  # several at once
    assert len(stored_segments(str(folder))) > 2


@pytest.mark.parametrize("lost", [1, 3, 40, 100_000])
@pytest.mark.parametrize("of", ["csv", "journal", "both"])
def test_a_torn_end_is_cut_off(folder, lost, of):
    """Whatever of both files a power cut leaves: what is whole stays, and writing goes on behind it."""
    store = opened(folder)
    for i in range(4):
        store.append(late_batch([f"{i}"]))
    store.close()
    for path in folder.glob("requests-*"):
        if of in (path.suffix[1:], "both"):
            os.truncate(path, max(0, path.stat().st_size - lost))
    store = opened(folder)
    store.append(late_batch(["new"]))
    store.close()
    found = ids(folder)
    assert found[-1] == "new"
    assert found[:-1] == [str(i) for i in range(len(found) - 1)]
    if of == "journal" and lost < 1000:  # the lines say themselves that they are whole
        assert len(found) == 5
    if of == "csv" and lost < 40:
        assert len(found) == 4
    data = b"".join(path.read_bytes() for path in folder.glob("*.csv"))
    assert data.count(b"\n") == len(found) + len(list(folder.glob("*.csv")))


def test_zeros_in_place_of_the_last_lines_are_cut_off(folder):
    store = opened(folder)
    for i in range(3):
        store.append(late_batch([f"{i}"]))
    store.close()
    (path,) = folder.glob("*.csv")
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size - 60)
        file.write(bytes(60))
    store = opened(folder)
    answer = store.append(late_batch(["2"]))
    store.close()
    assert answer["error"][0] == b""
    assert ids(folder) == ["0", "1", "2"]


@pytest.mark.parametrize("damage", ["lost", "damaged", "behind"])
def test_the_index_of_ids_is_made_again(folder, damage, tmp_path):
    store = opened(folder)
    store.append(late_batch(["a"]))
    store.close()
    shutil.copy(folder / "ids.sqlite", tmp_path / "old.sqlite")
    store = opened(folder)
    store.append(late_batch(["b"]))
    store.close()
    for path in folder.glob("ids.sqlite*"):
        path.unlink()
    if damage == "damaged":
        (folder / "ids.sqlite").write_bytes(b"no database" * 1000)
    elif damage == "behind":
        shutil.copy(tmp_path / "old.sqlite", folder / "ids.sqlite")
    store = opened(folder)
    store.append(late_batch(["a"]))
    store.append(late_batch(["b"]))
    store.close()
    assert ids(folder) == ["a", "b"]


def test_damage_in_the_middle_is_noticed(folder):
    store = opened(folder)
    for name in "abc":
        store.append(late_batch([name]))
    store.close()
    (path,) = folder.glob("*.csv")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(MillraceError, match="are not those that were written"):
        ids(folder)


def test_one_process_writes(folder):
    store = opened(folder)
    with pytest.raises(UsageError, match="another server writes there"):
        opened(folder)
    store.close()
    opened(folder).close()


def test_a_folder_with_something_else_is_refused(folder):
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds 'notes"):
        opened(folder)


def test_old_files_are_removed_with_their_ids(folder, monkeypatch):
    monkeypatch.setattr("millrace.store.store.RETENTION_SECONDS", 0.0)
    now = [1.8e9]
    store = opened(folder, segment_bytes=1, retain_days=2, clock=lambda: now[0])
    store.append(late_batch(["old"], at=now[0]))
    now[0] += 3 * DAY
    store.append(late_batch(["new"], at=now[0]))
    store.append(late_batch(["newer"], at=now[0]))
    assert ids(folder) == ["new", "newer"]
    store.append(late_batch(["old"], at=now[0]))
    store.close()
    assert ids(folder) == ["new", "newer", "old"]


def test_a_clock_that_jumps_back_removes_nothing_and_breaks_nothing(folder, monkeypatch):
    monkeypatch.setattr("millrace.store.store.RETENTION_SECONDS", 0.0)
    now = [1.8e9]
    store = opened(folder, segment_bytes=1, retain_days=1, clock=lambda: now[0])
    for i, jump in enumerate((0, -400 * DAY, -1.9e9, 10)):
        now[0] += jump
        store.append(late_batch([f"{i}"], at=now[0]))
    store.close()
    store = opened(folder, clock=lambda: 5.0)
    store.append(late_batch(["0"], at=5.0))
    store.close()
    assert ids(folder) == ["0", "1", "2", "3"]


def test_another_schema_begins_another_file(folder):
    store = opened(folder)
    store.append(late_batch(["a"]))
    store.close()
    other = parse_schema(LATE.replace("name: hours", "name: minutes").encode(), "other.yaml")
    store = RequestStore(StoreOptions(path=str(folder)), other, classes=CLASSES)
    batch = late_batch(["b"])
    batch = dataclasses.replace(batch, columns={**batch.columns, "minutes": batch.columns["hours"]})
    store.append(batch)
    again = late_batch(["a"])
    again = dataclasses.replace(again, columns={**again.columns, "minutes": again.columns["hours"]})
    answer = store.append(again)
    store.close()
    assert b"is the id of another request" in answer["error"][0]
    assert [segment.columns[1] for segment in stored_segments(str(folder))] == ["hours", "minutes"]


def test_a_full_disk_stores_nothing_of_a_batch_and_goes_on_when_there_is_room(folder, monkeypatch):
    store = opened(folder)
    store.append(late_batch(["a"]))
    write, room = os.pwrite, [100]

    def full(handle: int, data: bytes, at: int) -> int:
        written = write(handle, bytes(data)[: room[0]], at) if room[0] else 0
        room[0] -= written
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        with pytest.raises(MillraceError, match="No space left on device; the requests were not stored"):
            store.append(late_batch(["b", "c"]))
    monkeypatch.setattr(os, "pwrite", write)
    store.append(late_batch(["b", "c"]))
    store.close()
    assert ids(folder) == ["a", "b", "c"]
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.csv")))
    assert data.count(b'"b"') == 2  # its key and its id, once each: nothing of the failed ones is left


def test_a_store_that_does_not_wait_writes_everything_by_its_end(folder):
    store = opened(folder, asynchronous=True)
    for i in range(50):
        store.append(late_batch([f"{i}"]))
    store.close()
    assert ids(folder) == [str(i) for i in range(50)]


def test_more_than_may_wait_is_refused(folder, monkeypatch):
    store = opened(folder, asynchronous=True, pending_bytes=1000)
    go_on, find = threading.Event(), Ids.find

    def find_later(self: Ids, keys: list[bytes]) -> dict:
        go_on.wait()
        return find(self, keys)

    monkeypatch.setattr(Ids, "find", find_later)
    asked = [store.submit(late_batch([f"{i}"])) for i in range(100)]
    assert asked[0].exception() is None
    assert "wait to be stored" in str(asked[-1].exception())
    go_on.set()
    store.close()
    found = ids(folder)
    assert found == [str(i) for i in range(len(found))]
    assert found


def test_the_journal_knows_every_group(folder):
    store = opened(folder)
    store.append(late_batch(["a", "b"], at=5.0))
    store.append(late_batch(["c"], at=3.0))
    store.close()
    journal = read_journal(str(folder / "requests-00000001.journal"))
    assert [group.rows for group in journal.groups] == [0, 2, 1]
    assert journal.last == 5.0
    assert journal.end == (folder / "requests-00000001.csv").stat().st_size
