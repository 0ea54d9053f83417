"""A power cut behind the commit: everything that the manifest names is flushed to disk before the manifest is.

What has been flushed is recorded, not assumed: at the moment when the manifest gets its name, each file and folder of
the run must have gone through `fsync` since it was last changed, whoever wrote it (TensorFlow writes behind Python).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import Dataset, layout
from schemas.dataset.verify import verify_dataset
from tests.beam_jobs.images import test_jobs
from tests.beam_jobs.replay import test_images
from tests.support import replaying
from tests.support.drawn_images import write_folders
from tests.support.people import Job
from tests.support.replaying import Folder

pytestmark = pytest.mark.slow


class Flushes:
    """Which files and folders went to disk, as of which change, and which new names did not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushed: dict[tuple[int, int], int] = {}  # device, inode -> when it had last been changed
        self.unnamed: set[str] = set()  # folders that were made, and whose parent was not flushed since
        self.commits: list[list[str]] = []  # what each manifest's rename found missing
        fsync, mkdir, replace = os.fsync, os.mkdir, os.replace

        def record_fsync(handle: int) -> None:
            now = os.fstat(handle)
            fsync(handle)
            self.flushed[now.st_dev, now.st_ino] = now.st_ctime_ns
            self.unnamed = {p for p in self.unnamed if not same_file(os.path.dirname(p), now)}

        def record_mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            mkdir(path, *args, **kwargs)
            self.unnamed.add(os.path.abspath(path))

        def record_replace(source: Any, target: Any) -> None:
            if os.path.basename(target) == layout.MANIFEST:
                self.commits.append(list(self.missing(Path(target).parent)))
            replace(source, target)

        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(os, "mkdir", record_mkdir)
        monkeypatch.setattr(os, "replace", record_replace)

    def missing(self, output: Path) -> Iterator[str]:
        """Names in the newest run, and folders on the way to it, that a power cut may take."""
        run = max(path for path in output.iterdir() if layout.RUN.fullmatch(path.name))
        for path in (run, *sorted(run.rglob("*"))):
            now = path.stat()
            if self.flushed.get((now.st_dev, now.st_ino), 0) < now.st_ctime_ns:
                yield str(path.relative_to(output))
        yield from (str(p) for p in (run, output, *output.parents) if str(p) in self.unnamed)


def same_file(path: str, now: os.stat_result) -> bool:
    if not os.path.isdir(path):
        return False
    found = os.stat(path)
    return (found.st_dev, found.st_ino) == (now.st_dev, now.st_ino)


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    return Flushes(monkeypatch)


def test_a_job_flushes_before_it_commits_the_first_time_and_over_another(people: Job, flushes: Flushes) -> None:
    output = people.folder / "new" / "folders" / "out"
    for overwrite in (False, True):
        people.run(output=str(output), overwrite=overwrite)
    assert flushes.commits == [[], []]


def test_a_job_on_pairs_of_images_flushes_before_it_commits(tmp_path: Path, flushes: Flushes) -> None:
    write_folders(tmp_path / "raw", each=8)
    test_jobs.run(tmp_path, test_jobs.PAIRS_OF_ALL, str(tmp_path / "raw/*/*"))
    assert flushes.commits == [[]]


def test_a_replay_of_rows_flushes_before_it_commits(rejecting: Dataset, folder: Folder, flushes: Flushes) -> None:
    outcome = folder.replay(folder.correct(rejecting, replaying.as_good))
    assert outcome.added
    assert flushes.commits == [[]]
    assert verify_dataset(folder.output) == []


def test_a_job_on_images_and_a_replay_of_images_flush_before_they_commit(tmp_path: Path, flushes: Flushes) -> None:
    write_folders(tmp_path / "raw", each=8)
    bad = tmp_path / "raw" / "disc" / "none.png"
    bad.write_bytes(b"")
    before = test_images.job(tmp_path, test_images.FOLDERS, str(tmp_path / "raw/*/*"))
    bad.write_bytes(test_images.PNG)
    outcome = test_images.replay(tmp_path, list(test_images.rejects_of(before).values()))
    assert outcome.added == 1
    assert flushes.commits == [[], []]


@pytest.mark.parametrize("change", [Path.touch, lambda path: path.rename(path.with_name("renamed"))])
def test_the_recording_shows_what_was_not_flushed(
    tmp_path: Path, flushes: Flushes, change: Callable[[Path], Any]
) -> None:
    from schemas import storage
    from schemas.storage import folders

    file = tmp_path / "out" / "20261121T074500Z-3f2a" / "folder" / "file"
    storage.write_bytes(str(file), b"x")
    assert list(flushes.missing(tmp_path / "out"))
    folders.flush(str(tmp_path / "out" / "20261121T074500Z-3f2a"))
    assert list(flushes.missing(tmp_path / "out")) == [str(tmp_path / "out")]  # a name in the folder above
    folders.flush_name(str(tmp_path / "out"))
    assert list(flushes.missing(tmp_path / "out")) == []
    change(file)
    assert any("folder" in name for name in flushes.missing(tmp_path / "out"))
