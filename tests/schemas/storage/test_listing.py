"""Files are listed in bounded memory: each once, in the order of a hash of its path, as `expand` would name them."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Hashable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.storage import FileStat, Listing, file_key, list_files, name_hash
from schemas.storage.listing import MAX_RUNS

NAMES = ["a.csv", "b.csv", ".hidden.csv", "x/a.csv", "x/y/a.csv", "x/.y/a.csv", "x/[a].csv", "x/a.txt"]


def listed(*patterns: str) -> tuple[Listing, list[tuple[str, str]]]:
    duplicates: list[tuple[str, str]] = []
    return list_files(patterns, on_duplicate=lambda *paths: duplicates.append(paths)), duplicates


class TestListFiles:
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in NAMES:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(name)

    @pytest.mark.parametrize(
        "patterns",
        [
            ("*.csv",),
            ("./*.csv",),
            ("**/*.csv",),
            ("x/*",),
            ("*/*.csv", "a.csv"),
            ("x/[a].csv",),
            ("x/.y/*",),
            ("*/y/a.csv",),
            ("x//*.csv",),
            ("*//a.csv",),
            ("./x/./*.csv",),
            ("a.csv", "b.csv", "a.csv", "./a.csv"),
        ],
        ids=" ".join,
    )
    def test_names_what_expand_names(self, patterns):
        expected: list[tuple[str, str]] = []
        paths = storage.expand(patterns, on_duplicates=expected.extend)
        found, duplicates = listed(*patterns)
        assert sorted(file.path for file in found) == paths
        assert sorted(duplicates) == sorted(expected)
        assert (len(found), found.bytes) == (len(paths), sum(map(os.path.getsize, paths)))
        for file in found:
            assert FileStat(file.size, file.version) == storage.stat(file.path)

    def test_an_absolute_pattern(self, tmp_path):
        assert [file.path for file in listed(f"{tmp_path}/x/y/*.csv")[0]] == [f"{tmp_path}/x/y/a.csv"]

    def test_the_order_is_that_of_the_keys_and_no_other_file_changes_it(self):
        few = [file.key for file in listed("x/*")[0]]
        many = [file.key for file in listed("**/*")[0]]
        assert many == sorted(many)
        assert [key for key in many if key in few] == few
        assert few == sorted(map(file_key, ("x/a.csv", "x/[a].csv", "x/a.txt")))

    def test_the_order_is_the_same_in_another_folder(self):
        names = [f"{number}.csv" for number in range(50)]
        here, there = (sorted(names, key=lambda name: file_key(f"{folder}/{name}")) for folder in ("x", "/else/where"))
        assert here == there
        assert [name_hash(file_key(f"x/{name}")) for name in names] == [name_hash(file_key(name)) for name in names]

    def test_links_to_one_file_are_read_once_under_the_path_given_first(self):
        os.symlink("a.csv", "link.csv")
        os.link("a.csv", "hard.csv")
        found, duplicates = listed("hard.csv", "*.csv")
        assert sorted(file.path for file in found) == ["b.csv", "hard.csv"]
        assert sorted(duplicates) == [("hard.csv", "a.csv"), ("hard.csv", "hard.csv"), ("hard.csv", "link.csv")]

    def test_a_dangling_link_is_listed_and_reported_when_it_is_read(self):
        os.symlink("nowhere", "x/dangling.csv")
        (dangling,) = (file for file in listed("x/*.csv")[0] if "dangling" in file.path)
        with pytest.raises(MillraceError, match=r"x/dangling.csv: No such file"):
            dangling.checked()

    @pytest.mark.parametrize(
        ("patterns", "message"),
        [
            ((), "no input"),
            (("nowhere.csv",), "nowhere.csv: no such file"),
            (("*.parquet",), r"\*.parquet: no file matches this pattern"),
            (("x",), "x: is a folder"),
            (("hdfs://bucket/x",), "unsupported address"),
            (("a\0*",), "no file matches"),
        ],
    )
    def test_patterns_that_name_nothing_are_refused(self, patterns, message):
        with pytest.raises(UsageError, match=message):
            listed(*patterns)

    def test_two_names_of_one_hash_are_refused(self):
        with (
            mock.patch("schemas.storage.listing.file_key", return_value=7),
            pytest.raises(UsageError, match="same hash"),
        ):
            list(listed("*.csv")[0])


class Names:
    """A store that lists names, one by one."""

    def __init__(self, count: int) -> None:
        self.count, self.given = count, 0

    def explain(self, error: Exception) -> str | None:
        return None

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat, Hashable]]:
        places = list(range(self.count))
        random.Random(1).shuffle(places)
        for i in places:
            self.given += 1
            yield f"names://{i:06d}\udcff", FileStat(10, "1"), i // 2  # each file has two names


@pytest.mark.parametrize("budget", [20_000, 400])  # the second makes more files than are merged at once
def test_many_names_go_through_files_and_come_out_once(tmp_path, monkeypatch, budget):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store, twice = Names(4000), []
    with mock.patch.dict("schemas.storage.paths._STORES", {"names://": store}):
        found = list_files(["names://*"], on_duplicate=lambda *paths: twice.append(paths), budget=budget)
    files = [path for folder in tmp_path.iterdir() for path in folder.iterdir()]
    assert 0 < len(files) < MAX_RUNS  # 4,000 names of more than 100 bytes each
    assert store.given == 4000
    assert sorted(file.path for file in found) == [f"names://{i:06d}\udcff" for i in range(0, 4000, 2)]
    assert [file.key for file in found] == sorted(file_key(file.path) for file in found)
    assert sorted(twice) == [(f"names://{i:06d}\udcff", f"names://{i + 1:06d}\udcff") for i in range(0, 4000, 2)]
    assert (found.files, found.bytes) == (2000, 20_000)
    del found
    gc.collect()
    assert not list(tmp_path.iterdir())
