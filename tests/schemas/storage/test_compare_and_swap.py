"""Compare and swap, on local disk and on Google Cloud Storage."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from schemas import storage
from schemas.storage import folders
from schemas.storage.folders import Changed, Seen


def test_a_file_is_created_replaced_and_removed_while_unchanged(data_dir):
    path = storage.join(data_dir, "x")
    none = folders.look(path)
    assert none == Seen(None)
    first = folders.swap(path, b"1", none)
    assert folders.look(path) == first
    second = folders.swap(path, b"2", first)
    assert folders.look(path) == second
    assert second.data == b"2"
    assert folders.swap(path, None, second) == Seen(None)
    assert not storage.exists(path)


def test_a_file_that_changed_in_the_meantime_is_left_alone(data_dir):
    path = storage.join(data_dir, "x")
    none = folders.look(path)
    first = folders.swap(path, b"1", none)
    for stale in (none, Seen(b"0", 99)):
        with pytest.raises(Changed, match="changed by another process"):
            folders.swap(path, b"3", stale)
    with pytest.raises(Changed):
        folders.swap(path, None, Seen(b"0", 99))
    folders.swap(path, None, first)
    with pytest.raises(Changed):
        folders.swap(path, b"2", first)  # a file that is gone has changed, too
    assert not storage.exists(path)


def test_of_many_swaps_at_once_one_succeeds(data_dir):
    path = storage.join(data_dir, "x")
    seen, wins = folders.look(path), []

    def attempt(data: bytes) -> None:
        with contextlib.suppress(Changed):
            wins.append(folders.swap(path, data, seen).data)

    threads = [threading.Thread(target=attempt, args=(str(i).encode(),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [storage.read_bytes(path)]


def test_nothing_is_swapped_if_another_file_changed(data_dir):
    guard, path = storage.join(data_dir, "guard"), storage.join(data_dir, "x")
    seen = folders.swap(guard, b"mine", Seen(None))
    first = folders.swap(path, b"1", Seen(None), unless=(guard, seen))
    folders.swap(guard, b"theirs", seen)
    with pytest.raises(Changed, match="guard"):
        folders.swap(path, b"2", first, unless=(guard, seen))
    assert storage.read_bytes(path) == b"1"


@pytest.mark.parametrize("data_dir", ["gcs"], indirect=True)  # the cloud's client alone sends a put again
def test_a_put_that_the_client_sends_again_is_no_change_of_somebody_elses(data_dir):
    path = storage.join(data_dir, "x")
    once = folders.swap(path, b"1", Seen(None))
    assert folders.swap(path, b"1", Seen(None)) == once


def test_the_next_put_removes_what_a_killed_process_left(tmp_path: Path):
    stray = tmp_path / f".x.{'0' * 32}.tmp"
    other = tmp_path / f".y.{'0' * 32}.tmp"
    stray.touch()
    other.touch()
    folders.swap(str(tmp_path / "x"), b"1", Seen(None))
    assert not stray.exists()
    assert other.exists()


def test_a_fence_that_comes_late_costs_a_swap_a_second_try(tmp_path: Path, monkeypatch):
    path, replace = str(tmp_path / "x"), os.replace

    def fenced(*args):
        monkeypatch.setattr(os, "replace", replace)
        folders.fence(path)
        replace(*args)

    monkeypatch.setattr(os, "replace", fenced)
    assert folders.swap(path, b"1", Seen(None)) == folders.look(path) == Seen(b"1")


def test_what_came_into_the_place_of_a_file_that_is_removed_is_put_back(tmp_path: Path, monkeypatch):
    path, rename = tmp_path / "x", os.rename
    path.write_bytes(b"mine")

    def late(*args):
        path.write_bytes(b"theirs")
        rename(*args)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(Changed):
        folders.swap(str(path), None, Seen(b"mine"))
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("data_dir", ["gcs"], indirect=True)
def test_a_fence_in_a_bucket_is_another_generation_of_the_same_bytes(data_dir):
    path = storage.join(data_dir, "x")
    folders.fence(path)
    assert not storage.exists(path)
    seen = folders.swap(path, b"1", Seen(None))
    folders.fence(path)
    assert storage.read_bytes(path) == b"1"
    with pytest.raises(Changed):
        folders.swap(path, b"2", seen)
