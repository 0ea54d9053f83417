"""The commit: who may still do it, and what holds once it is done, also after a power cut.

What has been flushed is recorded, not assumed: at the moment when the manifest gets its name, each file and folder of
the run must have gone through `fsync` since it was last changed, whoever wrote it (TensorFlow writes behind Python).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.preprocess import main
from beam_jobs.records import result
from beam_jobs.runs import commit
from beam_jobs.runs.commit import CommitDataset
from beam_jobs.runs.run import DATASET
from schemas import storage
from schemas.dataset import layout, lease, open_dataset
from schemas.dataset.lease import Lease, hold
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders
from tests.support.datasets import Folder
from tests.support.forking import Flushes
from tests.support.image_files import IMAGES, write_folders
from tests.support.processes import until
from tests.support.written_records import records


@pytest.mark.parametrize("removes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_job_whose_lease_was_taken_fails_and_commits_nothing(written, monkeypatch, removes):
    people, first = written, open_dataset(str(written.output))
    original = result.check_counts
    with contextlib.ExitStack() as theirs:

        def overtaken(*args):
            """Another job finds this one silent, and may be done, and have cleaned up, when this one wakes."""
            original(*args)
            theirs.enter_context(hold(str(people.output), run="theirs", stale_seconds=-1))
            if removes:
                (run,) = (p for p in people.output.iterdir() if layout.RUN.fullmatch(p.name) and p.name != first.run)
                shutil.rmtree(run)

        monkeypatch.setattr(commit, "check_counts", overtaken)
        with pytest.raises(MillraceError, match=r"lease .* by run theirs"):
            people.run(overwrite=True)
        assert json.loads((people.output / layout.LEASE).read_text())["run"] == "theirs"
    assert open_dataset(str(people.output)).run == first.run
    assert set(os.listdir(people.output)) == {layout.MANIFEST, layout.FAILED, first.run}


def test_a_manifest_that_was_changed_meanwhile_is_not_replaced(written, monkeypatch):
    manifest = written.output / layout.MANIFEST
    changed = manifest.read_bytes().replace(b'"seed": 0', b'"seed": 1')
    original = result.check_counts
    monkeypatch.setattr(commit, "check_counts", lambda *args: (original(*args), manifest.write_bytes(changed)))
    with pytest.raises(MillraceError, match="was changed while this job ran"):
        written.run(overwrite=True)
    assert manifest.read_bytes() == changed


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("the answer was lost")])
def test_a_failure_after_the_commit_does_not_undo_it(people, monkeypatch, error):
    original = Lease.put

    def put(self, *args):
        original(self, *args)
        raise error

    monkeypatch.setattr(Lease, "put", put)
    dataset = people.run()
    assert sum(sum(records(dataset, split).values()) for split in dataset.splits) == 500
    assert set(os.listdir(people.output)) == {layout.MANIFEST, dataset.run}


def test_a_dataset_is_written_even_if_leftovers_cannot_be_removed(people, monkeypatch, capsys):
    def prune(*_):
        raise MillraceError("no permission")

    monkeypatch.setattr(CommitDataset, "kind", dataclasses.replace(DATASET, prune=prune))
    assert main(people.argv()) == 0
    assert (
        "the new run is committed, but leftovers of earlier jobs could not be removed: no permission"
        in capsys.readouterr().err
    )
    open_dataset(str(people.output))


@pytest.mark.slow
def test_the_next_commit_removes_what_killed_jobs_left(written):
    people, first = written, open_dataset(str(written.output))
    stale = [people.output / "20200101T000000Z-0000" / "staging", people.output / f".manifest.json.{'0' * 32}.tmp"]
    stale[0].mkdir(parents=True)
    (stale[0] / "fragment-1").write_text("x")
    stale[1].write_text("{")
    summary_path = people.output / layout.FAILED / "20200101T000000Z-0001" / "summary.json"
    summary_path.parent.mkdir(parents=True)
    summary_path.write_text("{}")
    second = people.run(overwrite=True)
    assert set(os.listdir(people.output)) == {layout.MANIFEST, layout.FAILED, first.run, second.run}
    assert summary_path.exists()
    third = people.run(overwrite=True)
    assert set(os.listdir(people.output)) == {layout.MANIFEST, layout.FAILED, second.run, third.run}


def test_a_job_without_overwrite_does_not_replace_what_another_commits_before_it_gets_the_lease(people, monkeypatch):
    original = lease.hold

    @contextlib.contextmanager
    def late(*args, **kwargs):
        monkeypatch.undo()
        people.run()
        with original(*args, **kwargs) as job_lease:
            yield job_lease

    monkeypatch.setattr(lease, "hold", late)
    with pytest.raises(UsageError, match="already contains a dataset"):
        people.run()
    now = open_dataset(str(people.output))
    assert sum(sum(records(now, split).values()) for split in now.splits) == 500
    assert set(os.listdir(people.output)) == {layout.MANIFEST, now.run}


@pytest.fixture
def flushes() -> Iterator[Flushes]:
    with Flushes().recorded() as recorded:
        yield recorded


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_job_flushes_before_it_commits_the_first_time_and_over_another(
    people: Folder, flushes: Flushes, by_hand: bool
) -> None:
    output = people.path / "new" / "folders" / "out"
    if by_hand:
        folders.make(str(output.parent))
        output.mkdir()
    for overwrite in (False, True):
        people.run(output=str(output), overwrite=overwrite)
    assert flushes.commits == [[], []]


@pytest.mark.slow
def test_a_job_on_images_and_a_replay_of_images_flush_before_they_commit(
    folder: Folder, tmp_path: Path, flushes: Flushes
) -> None:
    write_folders(tmp_path / "raw", per_class=8)
    bad = tmp_path / "raw" / "disc" / "none.png"
    bad.write_bytes(b"")
    before = folder.job(IMAGES, str(tmp_path / "raw/*/*"), max_reject_fraction=1.0)
    bad.write_bytes((bad.parent / "001.png").read_bytes())
    assert folder.replay(folder.correct(before)).added == 1
    assert flushes.commits == [[], []]


@pytest.mark.parametrize("change", [Path.touch, lambda path: path.rename(path.with_name("renamed"))])
@pytest.mark.slow
def test_the_recording_shows_what_was_not_flushed(
    tmp_path: Path, flushes: Flushes, change: Callable[[Path], Any]
) -> None:
    run = tmp_path / "out" / "20261121T074500Z-3f2a"
    file, other = run / "folder" / "file", tmp_path / "other"

    def ticked() -> bool:
        other.touch()
        return other.stat().st_ctime_ns > file.stat().st_ctime_ns

    storage.write_bytes(str(file), b"x")
    assert list(flushes.missing(run))
    folders.flush(str(run))
    assert list(flushes.missing(run)) == [str(tmp_path / "out")]  # a name in the folder above
    folders.flush_name(str(tmp_path / "out"))
    assert list(flushes.missing(run)) == []
    until(ticked, "the clock of the files goes on")
    change(file)
    assert any("folder" in name for name in flushes.missing(run))
