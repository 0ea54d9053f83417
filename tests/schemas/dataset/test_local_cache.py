"""`--cache_dir`: copies that are those of the manifest, made once, shared by processes, and bounded in bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import storage
from schemas.dataset import OpenDataset, local_cache, open_dataset
from schemas.dataset.local_cache import LocalCache
from schemas.errors import MillraceError, UsageError
from schemas.storage.local import temporary_for
from tests.support.dataset_faults import Written

SPLITS = ("train", "eval")
ROOM = 1 << 30

HOLDER = """
import sys
from schemas.dataset import open_dataset
from schemas.dataset.local_cache import LocalCache
cache = LocalCache(sys.argv[1], int(sys.argv[3]))
holding = cache.hold(open_dataset(sys.argv[2]), ("train", "eval"))
print(holding.copied, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def written(people_dataset: Written) -> Path:
    return people_dataset.path


@pytest.fixture
def dataset(written: Path, tmp_path: Path) -> OpenDataset:
    """A dataset of its own for each test."""
    shutil.copytree(written, tmp_path / "data")
    return open_dataset(str(tmp_path / "data"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def caches() -> Iterator[list[LocalCache]]:
    """Caches that a test opens; closed after it."""
    opened: list[LocalCache] = []
    yield opened
    for cache in opened:
        cache.close()


def files_in(folder: Path) -> dict[str, int]:
    """The size of each file in a cache that is no lock, by its path."""
    paths = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".in_use" and p.name != "lock"]
    return {str(p.relative_to(folder)): p.stat().st_size for p in paths}


def size_of(dataset: OpenDataset) -> int:
    files = [file.bytes for file in dataset.manifest.files if "rejects-" not in file.path]
    return sum(files) + sum(shard.bytes for split in SPLITS for shard in dataset.manifest.splits[split].shards)


def holder(folder: Path, dataset: OpenDataset) -> subprocess.Popen[str]:
    """Another process that holds the dataset in the cache; it prints how many files it has copied."""
    command = [sys.executable, "-c", HOLDER, str(folder), dataset.path, str(ROOM)]
    piped = subprocess.PIPE
    return subprocess.Popen(command, stdin=piped, stdout=piped, text=True, cwd=Path(__file__).parents[3])


def copied_by(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def hold(folder: Path, dataset: OpenDataset, opened: list[LocalCache], limit: int = ROOM) -> local_cache.CachedDataset:
    opened.append(LocalCache(str(folder), limit))
    return opened[-1].hold(dataset, SPLITS)


def test_what_is_read_is_the_copy_of_every_file_but_rejects_and_other_splits(dataset, folder, caches) -> None:
    holding = hold(folder, dataset, caches)
    for split in SPLITS:
        for there, here in zip(dataset.shards(split), holding.dataset.shards(split), strict=True):
            assert here.startswith(str(folder))
            assert Path(here).read_bytes() == Path(there).read_bytes()
    assert holding.dataset.shards("test") == dataset.shards("test")
    assert holding.dataset.graphs_dir.startswith(str(folder))  # which compares it with the manifest, too
    assert not [name for name in files_in(folder) if "/rejects-" in name or "/test-" in name]
    assert (holding.copied, holding.copied_bytes) == (holding.files, size_of(dataset))
    holding.dataset.check_sizes()  # of the dataset itself


def test_what_is_there_is_not_copied_again(dataset, folder, caches, monkeypatch) -> None:
    first = hold(folder, dataset, caches)
    monkeypatch.setattr(storage, "open_read", lambda path: pytest.fail(f"{path} was read"))
    again = hold(folder, dataset, caches)
    assert (again.copied, again.files) == (0, first.files)


@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
def test_a_copy_that_was_damaged_is_made_again(dataset, folder, caches, change: str) -> None:
    copy = Path(hold(folder, dataset, caches).dataset.shards("train")[1])
    good = copy.read_bytes()
    bad = {"flip": good[:-1] + bytes([good[-1] ^ 1]), "cut": good[:-1], "remove": None}[change]
    copy.unlink() if bad is None else copy.write_bytes(bad)
    assert hold(folder, dataset, caches).copied == 1
    assert copy.read_bytes() == good


def test_a_source_that_differs_from_its_manifest_is_named_and_not_kept(dataset, folder, caches) -> None:
    shard = Path(dataset.shards("train")[0])
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(MillraceError, match=rf"^{shard}: differs from the size or the checksum") as raised:
        hold(folder, dataset, caches)
    assert "\n" not in str(raised.value)
    assert not [name for name in files_in(folder) if name.endswith(shard.name)]


def test_the_run_that_was_used_longest_ago_makes_room_and_none_that_is_in_use(
    written, tmp_path, folder, caches
) -> None:
    datasets = []
    for name in "abc":
        shutil.copytree(written, tmp_path / name)
        datasets.append(open_dataset(str(tmp_path / name)))
    limit = 2 * size_of(datasets[0])
    for dataset in datasets[:2]:
        hold(folder, dataset, caches, limit)
    for cache in caches:
        cache.close()
    hold(folder, datasets[0], caches, limit).dataset.check_sizes()  # used again, and still in use
    hold(folder, datasets[2], caches, limit)
    assert sorted(p.name[0] for p in folder.iterdir() if any(p.rglob("*.tfrecord"))) == ["a", "c"]
    with pytest.raises(UsageError, match="no room"):  # all others are in use
        hold(folder, datasets[1], caches, limit)
    assert sum(files_in(folder).values()) <= limit


def test_of_several_processes_one_copies_each_file(dataset, folder, tmp_path: Path) -> None:
    started = [holder(folder, dataset) for _ in range(3)]
    copied = list(map(copied_by, started))
    for process in started:
        process.communicate("")
        assert process.returncode == 0
    assert sum(copied) == len(files_in(folder))


def test_what_a_killed_process_left_is_made_anew(dataset, folder, caches) -> None:
    shard = hold(folder, dataset, caches).dataset.shards("train")[0]
    caches.pop().close()
    left = temporary_for(shard)
    os.rename(shard, left)
    os.truncate(left, 10)
    assert hold(folder, dataset, caches).copied == 1
    assert not os.path.exists(left)


def test_the_lock_of_a_killed_process_ends_with_it(dataset, written, tmp_path, folder, caches) -> None:
    with holder(folder, dataset) as process:
        copied_by(process)
        shutil.copytree(written, tmp_path / "other")
        other = open_dataset(str(tmp_path / "other"))
        limit = int(1.5 * size_of(dataset))
        with pytest.raises(UsageError, match="no room"):
            hold(folder, other, caches, limit)
        process.send_signal(signal.SIGKILL)
        process.wait()
    hold(folder, other, caches, limit)


def test_a_cache_too_small_is_a_usage_error(dataset, folder, caches) -> None:
    with pytest.raises(UsageError, match=r"no room in .* Give --cache_gb 0\.\d+ or more, or train wit"):
        hold(folder, dataset, caches, size_of(dataset) - 1)
