"""Files by path, folders, compare and swap: on local disk and in buckets; one file of several names is read once."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.samples import tables
from schemas.storage import folders
from schemas.storage.folders import Changed, Snapshot
from schemas.storage.new_file import NewFile
from tests.support.small_jobs import interrupted


def test_what_is_written_is_read(data_dir: str) -> None:
    path = storage.join(data_dir, "x.bin")
    assert not storage.exists(path)
    storage.write_bytes(path, b"first")
    before = storage.stat(path)
    storage.write_bytes(path, b"second time")
    assert storage.read_bytes(path) == b"second time"
    assert storage.exists(path)
    assert storage.stat(path).size == 11
    assert storage.stat(path).version != before.version
    assert storage.listdir(data_dir) == ["x.bin"]


def test_a_file_is_read_from_any_place(data_dir: str) -> None:
    path = storage.join(data_dir, "x.bin")
    storage.write_bytes(path, bytes(range(256)))
    with storage.open_read(path, version=storage.stat(path).version) as file:
        file.seek(100)
        assert file.read(3) == bytes([100, 101, 102])
        file.seek(250)
        assert file.read() == bytes(range(250, 256))


def test_another_version_than_the_expected_one_is_refused(data_dir: str) -> None:
    path = storage.join(data_dir, "x.bin")
    storage.write_bytes(path, b"1")
    version = storage.stat(path).version
    storage.write_bytes(path, b"2")
    with pytest.raises(MillraceError, match="changed while it was being read"):
        storage.open_read(path, version=version)


def test_what_two_processes_delete_at_once_is_gone(data_dir: str) -> None:
    path = storage.join(data_dir, "a.json")
    storage.write_bytes(path, b"old")
    with interrupted(data_dir, {}) as steps:
        storage.delete(path)
    for step in range(steps.count):
        storage.write_bytes(path, b"old")
        with interrupted(data_dir, {step: [functools.partial(storage.delete, path)]}):
            storage.delete(path)
        assert not storage.exists(path)


def test_patterns_are_expanded_sorted_and_each_file_once(data_dir: str) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        storage.write_bytes(storage.join(data_dir, name), b"")
    names = [storage.join(data_dir, name) for name in ("a.csv", "b.csv", "c.txt")]
    patterns = [storage.join(data_dir, "c.txt"), storage.join(data_dir, "*.csv"), storage.join(data_dir, "a.csv")]
    assert storage.expand(patterns) == names


def test_a_glob_leaves_out_folders_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "nowhere").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    paths = storage.expand([f"{tmp_path}/*"])
    assert [Path(path).name for path in paths] == ["file", "nowhere", "pipe"]
    for path, message in zip(paths[1:], ("No such file", "is a folder, a pipe"), strict=True):
        with pytest.raises(MillraceError, match=message):
            storage.stat(path)


def test_a_file_whose_name_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    for name in ("data[1].csv", "data1.csv"):
        (tmp_path / name).touch()
    assert storage.expand([str(tmp_path / "data[1].csv")]) == [str(tmp_path / "data[1].csv")]


def test_a_file_that_another_process_is_writing_may_vanish_while_a_folder_is_flushed(tmp_path: Path) -> None:
    (tmp_path / f".schema.yaml.{'0' * 32}.tmp").symlink_to("vanished")
    folders.flush(str(tmp_path))
    (tmp_path / "schema.yaml").symlink_to("vanished")
    with pytest.raises(MillraceError, match="No such file"):
        folders.flush(str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file x.csv, and b.csv of the same content."""
    monkeypatch.chdir(tmp_path)
    for name in ("x.csv", "b.csv"):
        Path(name).write_text("a,b\n1,2\n")
    Path("sub").mkdir()
    Path("linked").symlink_to(".")
    Path("soft.csv").symlink_to("x.csv")
    os.link("x.csv", "sub/hard.csv")
    return tmp_path


def test_globs_that_overlap(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert storage.expand(["*.csv", "./*.csv", f"{folder}/*/*.csv"]) == ["b.csv", "soft.csv"]
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 6
    assert err[-1] == "and 3 more"


def test_objects_of_a_bucket(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.write_bytes(f"{bucket}/x.csv", b"")
    storage.write_bytes(f"{bucket}/./x.csv", b"")  # another object: names are no paths there
    patterns = [f"{bucket}/{name}" for name in ("x.csv", "*.csv", "./x.csv", "./*.csv")]
    assert storage.expand(patterns) == [f"{bucket}/./x.csv", f"{bucket}/x.csv"]
    messages = [f"{path} is named more than once; it is read once" for path in (f"{bucket}/./x.csv", f"{bucket}/x.csv")]
    assert capsys.readouterr().err.splitlines() == messages


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/null"), Path.mkdir])
@pytest.mark.parametrize(
    "write",
    [
        storage.check_output,
        lambda path: storage.write_bytes(path, b"x"),
        lambda path: tables.write_sample("covertype", path, rows=1, seed=1),
    ],
)
def test_no_file_is_put_in_place_of_what_is_none(
    tmp_path: Path, put: Callable[[Path], None], write: Callable[[str], None]
) -> None:
    path = tmp_path / "out.csv"
    put(path)
    before = path.lstat()
    with pytest.raises(
        UsageError, match=r"out\.csv: is a (folder|link|pipe, a socket or a device), which a file would"
    ):
        write(str(path))
    assert os.path.samestat(path.lstat(), before)
    assert os.listdir(tmp_path) == ["out.csv"]


def test_a_file_is_created_replaced_and_removed_while_unchanged(data_dir):
    path = storage.join(data_dir, "x")
    none = folders.look(path)
    assert none == Snapshot(None)
    first = folders.swap(path, b"1", none)
    assert folders.look(path) == first
    second = folders.swap(path, b"2", first)
    assert folders.look(path) == second
    assert second.data == b"2"
    assert folders.swap(path, None, second) == Snapshot(None)
    assert not storage.exists(path)


def test_a_file_that_changed_in_the_meantime_is_left_alone(data_dir):
    path = storage.join(data_dir, "x")
    none = folders.look(path)
    first = folders.swap(path, b"1", none)
    for stale in (none, Snapshot(b"0", 99)):
        with pytest.raises(Changed, match="changed by another process"):
            folders.swap(path, b"3", stale)
    with pytest.raises(Changed):
        folders.swap(path, None, Snapshot(b"0", 99))
    folders.swap(path, None, first)
    with pytest.raises(Changed):
        folders.swap(path, b"2", first)  # a file that is gone has changed, too
    assert not storage.exists(path)


def test_of_many_swaps_at_once_one_succeeds(data_dir):
    path = storage.join(data_dir, "x")
    snapshot, wins = folders.look(path), []

    def attempt(data: bytes) -> None:
        with contextlib.suppress(Changed):
            wins.append(folders.swap(path, data, snapshot).data)

    threads = [threading.Thread(target=attempt, args=(str(i).encode(),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [storage.read_bytes(path)]


def test_nothing_is_swapped_if_another_file_changed(data_dir):
    guard, path = storage.join(data_dir, "guard"), storage.join(data_dir, "x")
    snapshot = folders.swap(guard, b"mine", Snapshot(None))
    first = folders.swap(path, b"1", Snapshot(None), unless=(guard, snapshot))
    folders.swap(guard, b"theirs", snapshot)
    with pytest.raises(Changed, match="guard"):
        folders.swap(path, b"2", first, unless=(guard, snapshot))
    assert storage.read_bytes(path) == b"1"


def test_the_next_put_removes_what_a_killed_process_left(tmp_path: Path):
    stray = tmp_path / f".x.{'0' * 32}.tmp"
    other = tmp_path / f".y.{'0' * 32}.tmp"
    stray.touch()
    other.touch()
    folders.swap(str(tmp_path / "x"), b"1", Snapshot(None))
    assert not stray.exists()
    assert other.exists()


def test_a_fence_that_comes_late_costs_a_swap_a_second_try(tmp_path: Path, monkeypatch):
    path, replace = str(tmp_path / "x"), os.replace

    def fenced(*args):
        monkeypatch.setattr(os, "replace", replace)
        folders.fence(path)
        replace(*args)

    monkeypatch.setattr(os, "replace", fenced)
    assert folders.swap(path, b"1", Snapshot(None)) == folders.look(path) == Snapshot(b"1")


def test_what_came_into_the_place_of_a_file_that_is_removed_is_put_back(tmp_path: Path, monkeypatch):
    path, rename = tmp_path / "x", os.rename
    path.write_bytes(b"mine")

    def late(*args):
        path.write_bytes(b"theirs")
        rename(*args)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(Changed):
        folders.swap(str(path), None, Snapshot(b"mine"))
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("data_dir", ["gcs"], indirect=True)
def test_a_fence_in_a_bucket_is_another_generation_of_the_same_bytes(data_dir):
    path = storage.join(data_dir, "x")
    folders.fence(path)
    assert not storage.exists(path)
    snapshot = folders.swap(path, b"1", Snapshot(None))
    folders.fence(path)
    assert storage.read_bytes(path) == b"1"
    with pytest.raises(Changed):
        folders.swap(path, b"2", snapshot)


HOLDS = """
import sys, time
from schemas.storage import folders
with folders.locked(sys.argv[1]) as is_free:
    print(is_free, flush=True)
    time.sleep(600)
"""


def test_a_lock_on_a_folder_ends_with_its_process(tmp_path):
    """However that ends, so that whoever is started again has it at once."""
    folder = str(tmp_path / "new")
    for _ in range(2):
        command = [sys.executable, "-c", HOLDS, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stdout.readline() == "True\n"
            with folders.locked(folder) as is_free:
                assert not is_free
            process.kill()
    with folders.locked(folder) as is_free:
        assert is_free


def test_a_new_file_does_not_go_into_a_folder_of_its_name(tmp_path):
    (tmp_path / "predictions.csv").mkdir()
    with (
        pytest.raises(MillraceError, match=r"predictions\.csv: Is a directory"),
        NewFile(str(tmp_path / "predictions.csv")),
    ):
        pass
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["predictions.csv"]
