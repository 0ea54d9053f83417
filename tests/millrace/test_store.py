"""The store of requests: on disk before it returns, each id once, through kills, full disks and clocks that jump."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from millrace.store.columns import Outputs, ServedBatch
from millrace.store.ids import Ids
from millrace.store.segments import stored_segments
from millrace.store.store import DAY, RequestStore
from schemas.errors import MillraceError, UsageError
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE
from tests.support.model_server import PATIENCE
from tests.support.processes import until
from tests.support.stored_requests import CLASSES, SCHEMA, late_batch, stored_rows


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "store"


def opened(folder: Path, **settings) -> RequestStore:
    return RequestStore(str(folder), SCHEMA, classes=CLASSES, schema_yaml=LATE.encode(), **settings)


def store(folder: Path, *batches: ServedBatch, **settings) -> list[Outputs]:
    """Opens a store, stores some batches, and closes it: what each is answered with."""
    opening = opened(folder, **settings)
    try:
        return [opening.append(batch) for batch in batches]
    finally:
        opening.close()


def ids(folder: Path) -> list[str]:
    return [row["_id"].decode() for row in stored_rows(folder)]


def test_what_is_stored_of_a_request(folder):
    store(folder, late_batch(["r1"], age=30.5, share=0.75))
    (row,) = stored_rows(folder)
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
    store(folder, late_batch(["a"]))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_id_gets_its_stored_answer_and_is_stored_once(folder, restart):
    """Whatever the model says now. Outputs that are not stored, such as logits, are withheld."""
    first, then = late_batch(["a", "b"], share=0.75), late_batch(["c", "b"], share=0.125)
    answers = [*store(folder, first), *store(folder, then)] if restart else store(folder, first, then)
    assert answers[1]["class"].tolist() == [b"no", b"yes"]
    assert answers[1]["class_id"].tolist() == [0, 1]
    assert answers[1]["probabilities"].tolist() == [[0.875, 0.125], [0.25, 0.75]]
    assert np.isnan(answers[1]["logits"][:, 0]).tolist() == [False, True]
    assert answers[1]["error"].tolist() == [b"", b""]
    assert ids(folder) == ["a", "b", "c"]


def test_an_id_with_other_values_gets_an_error_and_harms_nobody_else(folder):
    _, answer = store(folder, late_batch(["a"]), late_batch(["a", "b"], age=99))
    assert b"is the id of another request" in answer["error"][0]
    assert answer["class"].tolist() == [b"", b"no"]
    assert ids(folder) == ["a", "b"]


def test_the_same_id_twice_in_a_batch_is_stored_once(folder):
    batch = late_batch(["a", "b"])
    batch.columns["hours"][:] = 0
    batch.columns["id"][:] = b"same"
    store(folder, dataclasses.replace(batch, ids=["a", "a"]))
    assert ids(folder) == ["a"]


def test_ids_that_the_server_makes_are_not_looked_up(folder):
    store(folder, *[late_batch(["a"], given=False)] * 2)
    assert ids(folder) == ["a", "a"]


def test_many_threads_store_each_row_once(folder):
    stored = opened(folder, segment_bytes=5000)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: stored.append(late_batch([f"{i}/0", f"{i}/1"])), range(100)))
    stored.close()
    assert sorted(ids(folder)) == sorted(f"{i}/{k}" for i in range(100) for k in range(2))
    assert stored.counts.rows == 200
    assert stored.counts.flushes <= 100
    assert len(stored_segments(str(folder))) > 2


@pytest.mark.parametrize(("asynchronous", "more"), [(False, 2), (True, 99)])
def test_what_gathers_during_a_flush_is_flushed_at_once(folder, monkeypatch, asynchronous, more):
    """Of a new file: one flush for its header, one for the first batch, and one for all that came meanwhile."""
    stored = opened(folder, asynchronous=asynchronous)
    flush, go_on = os.fdatasync, threading.Event()
    flushes: list[int] = []

    def held(handle: int) -> None:
        flushes.append(handle)
        assert go_on.wait(PATIENCE)
        flush(handle)

    monkeypatch.setattr(os, "fdatasync", held)
    answers = [stored.submit(late_batch(["0"]))]
    until(lambda: flushes)
    answers += [stored.submit(late_batch([str(i)])) for i in range(1, 1 + more)]
    assert [answer.done() for answer in answers] == [asynchronous] * len(answers)
    go_on.set()
    stored.close()
    assert len(flushes) == 3
    assert ids(folder) == [str(i) for i in range(1 + more)]


def shortened(lost: int, *endings: str) -> Callable[[Path], None]:
    def shorten(folder: Path) -> None:
        for path in folder.glob("requests-*"):
            if path.suffix[1:] in endings:
                os.truncate(path, max(0, path.stat().st_size - lost))

    return shorten


def with_zeros(folder: Path) -> None:
    (path,) = folder.glob("*.csv")
    path.write_bytes(path.read_bytes()[:-60] + bytes(60))


def with_a_changed_journal(folder: Path) -> None:
    (path,) = folder.glob("*.journal")
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, last.replace(b'"crc": ', b'"crc": 1')]))


def without_index(folder: Path) -> None:
    for path in folder.glob("ids.sqlite*"):
        path.unlink()


def with_damaged_index(folder: Path) -> None:
    without_index(folder)
    (folder / "ids.sqlite").write_bytes(b"no database" * 1000)


def with_an_index_that_is_behind(folder: Path) -> None:
    without_index(folder)
    shutil.copy(folder.parent / "old.sqlite", folder / "ids.sqlite")


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        *[(shortened(lost, "csv"), 3) for lost in (1, 3, 40)],
        *[(shortened(lost, "journal"), 4) for lost in (1, 3, 40)],  # the lines say themselves that they are whole
        *[(shortened(lost, "csv", "journal"), None) for lost in (1, 3, 40)],
        *[(shortened(100_000, *of), None) for of in (["csv"], ["journal"], ["csv", "journal"])],
        (with_zeros, 3),
        (with_a_changed_journal, 4),
        (without_index, 4),
        (with_damaged_index, 4),
        (with_an_index_that_is_behind, 4),
    ],
)
def test_what_a_kill_or_a_power_cut_leaves(folder, damage, left):
    """What is whole stays, each id once, and what is torn is cut off; writing goes on behind it."""
    store(folder, late_batch(["0"]), late_batch(["1"]))
    shutil.copy(folder / "ids.sqlite", folder.parent / "old.sqlite")
    store(folder, late_batch(["2"]), late_batch(["3"]))
    damage(folder)
    answers = store(folder, *[late_batch([each]) for each in ("new", *map(str, range(left or 0)), "3")])
    assert [answer["error"].tolist() for answer in answers] == [[b""]] * len(answers)
    found = ids(folder)
    kept = found.index("new")
    assert left in (None, kept)
    assert found == [*map(str, range(kept)), "new", *["3"] * (kept < 4)]
    data = b"".join(path.read_bytes() for path in folder.glob("*.csv"))
    assert data.count(b"\n") == len(found) + len(list(folder.glob("*.csv")))


def test_damage_in_the_middle_is_noticed(folder):
    store(folder, *[late_batch([name]) for name in "abc"])
    (path,) = folder.glob("*.csv")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(MillraceError, match="are not those that were written"):
        ids(folder)


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
    """Files that are too old are looked for with each batch."""
    monkeypatch.setattr("millrace.store.store.RETENTION_SECONDS", 0.0)


@pytest.mark.usefixtures("always_looking")
def test_old_files_are_removed_with_their_ids(folder):
    now = [1.8e9]
    stored = opened(folder, segment_bytes=1, retain_days=2, clock=lambda: now[0])
    stored.append(late_batch(["old"], at=now[0]))
    now[0] += 3 * DAY
    stored.append(late_batch(["new"], at=now[0]))
    stored.append(late_batch(["newer"], at=now[0]))
    assert ids(folder) == ["new", "newer"]
    stored.append(late_batch(["old"], at=now[0]))
    stored.close()
    assert ids(folder) == ["new", "newer", "old"]


@pytest.mark.usefixtures("always_looking")
def test_a_file_is_as_old_as_its_latest_request(folder):
    store(folder, late_batch(["new"], at=1.8e9), late_batch(["old"], at=1.8e9 - 9 * DAY))
    store(folder, *[late_batch([f"{i}"], at=1.8e9) for i in range(2)], segment_bytes=1)
    store(folder, late_batch(["2"], at=1.8e9), segment_bytes=1, retain_days=2, clock=lambda: 1.8e9 + DAY)
    assert ids(folder) == ["new", "old", "0", "1", "2"]


@pytest.mark.usefixtures("always_looking")
def test_a_clock_that_jumps_back_removes_nothing_and_breaks_nothing(folder):
    now = [1.8e9]
    stored = opened(folder, segment_bytes=1, retain_days=1, clock=lambda: now[0])
    for i, jump in enumerate((0, -400 * DAY, -1.9e9, 10)):
        now[0] += jump
        stored.append(late_batch([f"{i}"], at=now[0]))
    stored.close()
    store(folder, late_batch(["0"], at=5.0), clock=lambda: 5.0)
    assert ids(folder) == ["0", "1", "2", "3"]


def test_another_schema_begins_another_file(folder):
    store(folder, late_batch(["a"]))
    schema_yaml = LATE.replace("name: hours", "name: minutes").encode()
    stored = RequestStore(str(folder), parse_schema(schema_yaml, "s.yaml"), classes=CLASSES)
    for name in "ba":
        batch = late_batch([name])
        columns = {**batch.columns, "minutes": batch.columns["hours"]}
        answer = stored.append(dataclasses.replace(batch, columns=columns))
    stored.close()
    assert b"is the id of another request" in answer["error"][0]
    assert [segment.columns[1] for segment in stored_segments(str(folder))] == ["hours", "minutes"]


def test_a_full_disk_stores_nothing_of_a_batch_and_goes_on_when_there_is_room(folder, monkeypatch):
    stored = opened(folder)
    stored.append(late_batch(["a"]))
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
            stored.append(late_batch(["b", "c"]))
    monkeypatch.setattr(os, "pwrite", write)
    stored.append(late_batch(["b", "c"]))
    stored.close()
    assert ids(folder) == ["a", "b", "c"]
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.csv")))
    assert data.count(b'"b"') == 2  # its key and its id, once each: nothing of the failed ones is left


def test_a_store_that_does_not_wait_writes_everything_by_its_end(folder):
    store(folder, *[late_batch([f"{i}"]) for i in range(50)], asynchronous=True)
    assert ids(folder) == [str(i) for i in range(50)]


def test_more_than_may_wait_is_refused(folder, monkeypatch):
    stored = opened(folder, asynchronous=True, pending_bytes=1000)
    go_on, find = threading.Event(), Ids.find

    def find_later(self: Ids, keys: list[bytes]) -> dict:
        go_on.wait()
        return find(self, keys)

    monkeypatch.setattr(Ids, "find", find_later)
    asked = [stored.submit(late_batch([f"{i}"])) for i in range(100)]
    assert asked[0].exception() is None
    assert "wait to be stored" in str(asked[-1].exception())
    go_on.set()
    stored.close()
    found = ids(folder)
    assert found == [str(i) for i in range(len(found))]
    assert found
