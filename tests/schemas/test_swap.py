"""Compare and swap, on local disk and on Google Cloud Storage."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

import pytest

from schemas import storage, swap
from schemas.errors import MillraceError
from schemas.swap import Changed, Seen


def test_a_file_is_made_replaced_and_removed_as_long_as_it_is_as_it_was_seen(data_dir):
    path = storage.join(data_dir, "x")
    none = swap.look(path)
    assert none == Seen(None)
    first = swap.swap(path, b"1", none)
    assert swap.look(path) == first
    second = swap.swap(path, b"2", first)
    assert swap.look(path) == second
    assert second.data == b"2"
    assert swap.swap(path, None, second) == Seen(None)
    assert not storage.exists(path)


def test_what_changed_meanwhile_is_left_as_it_is(data_dir):
    path = storage.join(data_dir, "x")
    none = swap.look(path)
    first = swap.swap(path, b"1", none)
    for stale in (none, Seen(b"0", 99)):
        with pytest.raises(Changed, match="changed by another process"):
            swap.swap(path, b"3", stale)
    with pytest.raises(Changed):
        swap.swap(path, None, Seen(b"0", 99))
    swap.swap(path, None, first)
    with pytest.raises(Changed):
        swap.swap(path, b"2", first)  # a file that is gone has changed, too
    assert not storage.exists(path)


def test_of_many_swaps_at_once_one_succeeds(data_dir):
    path = storage.join(data_dir, "x")
    seen, wins = swap.look(path), []

    def attempt(data: bytes) -> None:
        with contextlib.suppress(Changed):
            wins.append(swap.swap(path, data, seen).data)

    threads = [threading.Thread(target=attempt, args=(str(i).encode(),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [storage.read_bytes(path)]


def test_nothing_is_swapped_where_another_file_changed(data_dir):
    guard, path = storage.join(data_dir, "guard"), storage.join(data_dir, "x")
    seen = swap.swap(guard, b"mine", Seen(None))
    first = swap.swap(path, b"1", Seen(None), unless=(guard, seen))
    swap.swap(guard, b"theirs", seen)
    with pytest.raises(Changed, match="guard"):
        swap.swap(path, b"2", first, unless=(guard, seen))
    assert storage.read_bytes(path) == b"1"


@pytest.mark.parametrize("data_dir", ["gcs"], indirect=True)  # the cloud's client alone sends a put again
def test_a_put_that_the_client_sends_again_is_no_change_of_somebody_elses(data_dir):
    path = storage.join(data_dir, "x")
    once = swap.swap(path, b"1", Seen(None))
    assert swap.swap(path, b"1", Seen(None)) == once


def test_what_a_killed_process_left_of_a_put_goes_with_the_next_one(tmp_path: Path):
    stray = tmp_path / f".x.{'0' * 32}.tmp"
    other = tmp_path / f".y.{'0' * 32}.tmp"
    stray.touch()
    other.touch()
    swap.swap(str(tmp_path / "x"), b"1", Seen(None))
    assert not stray.exists()
    assert other.exists()


def test_a_folder_that_stays_locked_is_told(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(swap, "_LOCK_SECONDS", 0.05)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(MillraceError, match=r"kept it locked for 0\.05 s"):
            swap.swap(str(tmp_path / "x"), b"1", Seen(None))
    finally:
        os.close(handle)
    swap.swap(str(tmp_path / "x"), b"1", Seen(None))
