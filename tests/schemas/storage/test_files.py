"""Files by path: the same on local disk and on Google Cloud Storage."""

from __future__ import annotations

import functools
import os
import pickle
import threading
from pathlib import Path

import pytest

from schemas import storage
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.dataset.manifest import read_manifest
from schemas.errors import MillraceError, UsageError
from tests.support.csv_reading import schema_of
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


def test_a_file_that_is_replaced_while_it_is_read_is_the_old_one_or_the_new(data_dir: str) -> None:
    path = storage.join(data_dir, "a.json")
    storage.write_bytes(path, b"old")
    with interrupted(data_dir, {}) as steps:
        assert storage.read_bytes(path) == b"old"
    for step in range(steps.count):
        storage.write_bytes(path, b"old")
        with interrupted(data_dir, {step: [functools.partial(storage.write_bytes, path, b"new")]}):
            assert storage.read_bytes(path) in (b"old", b"new")


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


def test_folders_are_listed_by_name(data_dir: str) -> None:
    for name in ("b.txt", "a/x.txt", "a/y/z.txt"):
        storage.write_bytes(storage.join(data_dir, name), b"")
    assert storage.listdir(data_dir) == ["a", "b.txt"]
    assert storage.listdir(storage.join(data_dir, "a")) == ["x.txt", "y"]
    assert storage.listdir(storage.join(data_dir, "nowhere")) == []
    assert storage.exists(storage.join(data_dir, "a"))


def test_what_is_deleted_is_gone(data_dir: str) -> None:
    path = storage.join(data_dir, "x.bin")
    storage.write_bytes(path, b"1")
    storage.delete(path)
    storage.delete(path)
    assert not storage.exists(path)


@pytest.mark.parametrize("act", [storage.stat, storage.open_read, storage.read_bytes])
def test_a_missing_file_is_named(data_dir: str, act: object) -> None:
    path = storage.join(data_dir, "nothing.csv")
    with pytest.raises(MillraceError, match=r"nothing\.csv: "):
        act(path)  # type: ignore[operator]


def test_patterns_are_expanded_sorted_and_each_file_once(data_dir: str) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        storage.write_bytes(storage.join(data_dir, name), b"")
    names = [storage.join(data_dir, name) for name in ("a.csv", "b.csv", "c.txt")]
    patterns = [storage.join(data_dir, "c.txt"), storage.join(data_dir, "*.csv"), storage.join(data_dir, "a.csv")]
    assert storage.expand(patterns) == names


@pytest.mark.parametrize(
    ("name", "found"),
    [("nothing.csv", "nothing.csv: no such file"), ("*.json", "json: no file matches this pattern")],
)
def test_a_missing_input_is_a_usage_error(data_dir: str, name: str, found: str) -> None:
    storage.write_bytes(storage.join(data_dir, "a.csv"), b"")
    with pytest.raises(UsageError, match=found):
        storage.expand([storage.join(data_dir, "a.csv"), storage.join(data_dir, name)])


def test_no_input_at_all_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no input: give"):
        storage.expand([])


def test_a_folder_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        storage.expand([str(tmp_path)])


def test_a_glob_leaves_out_folders_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "nowhere").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    found = storage.expand([f"{tmp_path}/*"])
    assert [Path(path).name for path in found] == ["file", "nowhere", "pipe"]
    for path, message in zip(found[1:], ("No such file", "is a folder, a pipe"), strict=True):
        with pytest.raises(MillraceError, match=message):
            storage.stat(path)


def test_a_file_whose_name_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    for name in ("data[1].csv", "data1.csv"):
        (tmp_path / name).touch()
    assert storage.expand([str(tmp_path / "data[1].csv")]) == [str(tmp_path / "data[1].csv")]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        (("a", "b"), "a/b"),
        (("a/", "/b/", "c"), "a/b/c"),
        (("/", "a"), "/a"),
        (("", "a"), "a"),
        (("gs://b", "x", ""), "gs://b/x"),
        (("a",), "a"),
    ],
)
def test_joined_paths(parts: tuple[str, ...], path: str) -> None:
    assert storage.join(*parts) == path


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.bin")
    sizes = [1, 3_000_000]
    storage.write_bytes(path, b"\0" * sizes[0])
    stop = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(len(storage.read_bytes(path)))

    reader = threading.Thread(target=read)
    reader.start()
    for size in sizes * 10:
        storage.write_bytes(path, b"\0" * size)
    stop.set()
    reader.join()
    assert seen <= set(sizes)
    assert os.listdir(tmp_path) == ["x.bin"]


def test_a_csv_file_is_read_range_by_range(data_dir: str) -> None:
    schema = schema_of()
    path = storage.join(data_dir, "x.csv")
    storage.write_bytes(path, b"a,b,c\n" + b"".join(b"%d,x,y\n" % i for i in range(1000)))
    parts = pickle.loads(pickle.dumps(split_ranges(open_csv(path, schema), range_bytes=1000)))
    rows = [row["a"][0] for part in parts for d in read_range(part, schema) for row in d.batch.to_pylist()]
    assert rows == [b"%d" % i for i in range(1000)]
    assert len(parts) == 8


@pytest.mark.parametrize("path", ["abfs://bucket/a.csv", "hdfs://host/a.csv", "file:///a.csv", "https://host/a.csv"])
def test_an_address_of_another_store_is_a_usage_error(path: str) -> None:
    for act in (lambda: storage.expand([path]), lambda: read_manifest(path)):
        with pytest.raises(UsageError, match="unsupported address; use a local path, gs:// or s3://") as caught:
            act()
        assert path in str(caught.value)


@pytest.mark.parametrize("path", ["gs:/b/x", "GS://b/x", "Gs:/b", "s3:/b/x", "S3://b/x"])
def test_a_misspelt_address_of_a_bucket_is_no_local_folder(path: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for act in (storage.is_local, storage.exists, storage.listdir, lambda path: storage.write_bytes(path, b"")):
        with pytest.raises(UsageError, match=r"is no address of a bucket; did you mean (gs|s3)://b"):
            act(path)
    assert list(tmp_path.iterdir()) == []
    storage.write_bytes(f"./{path}", b"1")
    assert storage.read_bytes(f"./{path}") == b"1"
