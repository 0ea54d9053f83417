"""A power cut behind the commit: everything that the manifest names is flushed to disk before the manifest is.

What has been flushed is recorded, not assumed: at the moment when the manifest gets its name, each file and folder of
the run must have gone through `fsync` since it was last changed, whoever wrote it (TensorFlow writes behind Python).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.beam_jobs.images import test_jobs
from tests.beam_jobs.runs import test_replay_images
from tests.support.forking import Flushes
from tests.support.image_files import write_folders
from tests.support.people import Job

pytestmark = pytest.mark.slow


@pytest.fixture
def flushes() -> Iterator[Flushes]:
    with Flushes().recorded() as recorded:
        yield recorded


def test_a_job_flushes_before_it_commits_the_first_time_and_over_another(people: Job, flushes: Flushes) -> None:
    output = people.folder / "new" / "folders" / "out"
    for overwrite in (False, True):
        people.run(output=str(output), overwrite=overwrite)
    assert flushes.commits == [[], []]


def test_a_job_on_pairs_of_images_flushes_before_it_commits(tmp_path: Path, flushes: Flushes) -> None:
    write_folders(tmp_path / "raw", each=8)
    test_jobs.run(tmp_path, test_jobs.PAIRS_OF_ALL, str(tmp_path / "raw/*/*"))
    assert flushes.commits == [[]]


def test_a_job_on_images_and_a_replay_of_images_flush_before_they_commit(tmp_path: Path, flushes: Flushes) -> None:
    write_folders(tmp_path / "raw", each=8)
    bad = tmp_path / "raw" / "disc" / "none.png"
    bad.write_bytes(b"")
    before = test_replay_images.job(tmp_path, test_replay_images.FOLDERS, str(tmp_path / "raw/*/*"))
    bad.write_bytes(test_replay_images.PNG)
    outcome = test_replay_images.replay(tmp_path, list(test_replay_images.rejects_of(before).values()))
    assert outcome.added == 1
    assert flushes.commits == [[], []]


@pytest.mark.parametrize("change", [Path.touch, lambda path: path.rename(path.with_name("renamed"))])
def test_the_recording_shows_what_was_not_flushed(
    tmp_path: Path, flushes: Flushes, change: Callable[[Path], Any]
) -> None:
    from schemas import storage
    from schemas.storage import folders

    run = tmp_path / "out" / "20261121T074500Z-3f2a"
    file = run / "folder" / "file"
    storage.write_bytes(str(file), b"x")
    assert list(flushes.missing(run))
    folders.flush(str(run))
    assert list(flushes.missing(run)) == [str(tmp_path / "out")]  # a name in the folder above
    folders.flush_name(str(tmp_path / "out"))
    assert list(flushes.missing(run)) == []
    change(file)
    assert any("folder" in name for name in flushes.missing(run))
