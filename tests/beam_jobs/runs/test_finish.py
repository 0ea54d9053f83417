"""The last step of a job on a cluster, and who asks about the job, cancels it or comes after it.

The pipeline ran once, here, up to its last step. Every test begins with a copy of the folder as it was then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.engines import jobs, runner
from beam_jobs.engines.remote_job import Unreachable
from beam_jobs.records.accounts import Unfit
from beam_jobs.runs import commit
from beam_jobs.runs.job import run_job, submit_job
from schemas.dataset import layout, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.errors import MillraceError
from tests.support.datasets import Submitting, raw_rows
from tests.support.forking import ARGUMENTS, StubJob

pytestmark = pytest.mark.slow


@dataclasses.dataclass(frozen=True)
class Scene:
    """A dataset, and a job on a cluster that would replace it, of which only the last step is missing."""

    there: Submitting
    options: JobOptions
    prepared: Path
    old: str
    last: Any

    def take_last_step(self) -> None:
        self.last()

    def restore(self) -> None:
        shutil.rmtree(self.there.output)
        shutil.copytree(self.prepared, self.there.output)

    def check(self, run: str) -> None:
        """The dataset is that of the run; beside it and the one before there are only rejects, and nobody's lease."""
        dataset = open_dataset(self.there.output)
        assert dataset.run == run
        assert verify_dataset(self.there.output) == []
        left = set(os.listdir(self.there.output)) - {layout.MANIFEST, layout.FAILED}
        assert left == {run, *dataset.manifest.previous}
        assert layout.STAGING not in os.listdir(dataset.run_dir)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("last")
    (folder / "people.csv").write_bytes(raw_rows(folder))
    there = Submitting(folder, str(folder), "PortableRunner", ())
    assert there.locally().code == 0
    steps = []

    run = runner.started

    @contextlib.contextmanager
    def started(options: JobOptions, build: Any, last: Any) -> Iterator[StubJob]:
        with run(dataclasses.replace(options, runner="FnApiRunner", beam_args=()), build, lambda: steps.append(last)):
            yield StubJob("RUNNING")

    options = JobOptions(
        schema=f"{folder}/schema.yaml",
        input=(f"{folder}/people.csv",),
        output=there.output,
        runner="PortableRunner",
        beam_args=ARGUMENTS[2:],
        max_reject_fraction=0.5,
        overwrite=True,
        quiet=True,
    )
    old = open_dataset(there.output).run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "started", started)
        submit_job(options)
    return Scene(there, options, Path(shutil.copytree(there.output, folder / "prepared")), old, steps[0])


@pytest.fixture
def scene(built: Scene) -> Scene:
    built.restore()
    return built


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StubJob:
    """The job as its runner has it."""
    job = StubJob("RUNNING")
    monkeypatch.setattr(jobs, "_connected", lambda _: job)
    return job


def test_the_last_step_commits_and_may_be_repeated(scene: Scene, cluster: StubJob) -> None:
    status = scene.there.job("status", "--json").data
    assert (status["run"], status["state"], status["job"]["id"]) == (scene.last.run.id, "running", "stub-1")
    assert scene.there.locally("--overwrite").code == 1  # the job holds the output
    for _ in range(2):
        scene.take_last_step()
        scene.check(scene.last.run.id)
    assert scene.there.job("status", "--json").data["state"] == "committed"
    assert scene.there.job("cancel").code == 2


def _refuse(*_: Any) -> NoReturn:
    raise Unfit("one record is unaccounted for")


def test_a_refusal_is_a_file_and_no_exception(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "check_counts", _refuse)
    for _ in range(2):
        scene.take_last_step()
        scene.check(scene.old)
    failed = Path(scene.there.output, layout.FAILED, scene.last.run.id)
    assert sorted(os.listdir(failed)) == ["rejects-00000.jsonl", layout.SUMMARY]
    assert json.loads((failed / layout.SUMMARY).read_text())["rejected"] == {"too_few_columns": 3}
    status = scene.there.job("status").out
    assert "state      failed" in status
    assert "one record is unaccounted for\nrejected: too_few_columns 3" in status


def test_the_status_is_that_of_the_last_job_even_of_two_in_one_second(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of runs hold the second in which they began; of two in one second, chance orders the names."""
    with monkeypatch.context() as patched:
        patched.setattr(commit, "check_counts", _refuse)
        scene.take_last_step()
    failed = Path(scene.there.output, layout.FAILED)
    (failed / scene.last.run.id).rename(failed / "20000101T000000Z-0000")
    assert scene.there.job("status", "--json").data["state"] == "failed"
    assert scene.there.locally("--overwrite").code == 0
    (failed / "20000101T000000Z-0000").rename(failed / "29991231T235959Z-ffff")
    assert scene.there.job("status", "--json").data["state"] == "committed"


def test_an_error_that_another_attempt_may_not_have_is_raised_and_changes_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> NoReturn:
        raise MillraceError("No space left on device")

    monkeypatch.setattr(commit, "place_split", full)
    with pytest.raises(MillraceError, match="No space left"):
        scene.take_last_step()
    assert scene.there.is_held_remotely
    monkeypatch.undo()
    scene.take_last_step()
    scene.check(scene.last.run.id)


def test_a_job_whose_lease_was_broken_commits_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: Any) -> NoReturn:
        raise Unreachable("it does not answer")

    monkeypatch.setattr(jobs, "_connected", silent)
    for refused in (scene.there.locally("--overwrite"), scene.there.job("status"), scene.there.job("cancel")):
        assert refused.code == 1
        assert "localhost:1 cannot be asked: it does not answer" in refused.err
    assert scene.there.locally("--overwrite", "--break_lease").code == 0
    new = open_dataset(scene.there.output).run
    scene.take_last_step()
    scene.check(new)
    assert "the lease of this job" in scene.there.job("status").out or new > scene.last.run.id


def test_a_cancelled_job_keeps_its_rejects_and_commits_nothing(scene: Scene, cluster: StubJob) -> None:
    cancelled = scene.there.job("cancel")
    assert cancelled.code == 0, cancelled.err
    assert f"has been cancelled; run {scene.last.run.id} was removed" in cancelled.out
    assert "too_few_columns 3" in cancelled.out
    scene.check(scene.old)
    scene.take_last_step()
    scene.check(scene.old)


@pytest.mark.parametrize("state", ["FAILED", "DONE"])
def test_a_job_that_has_ended_without_a_commit_frees_the_output(scene: Scene, cluster: StubJob, state: str) -> None:
    cluster.current_state = state
    status = scene.there.job("status").out
    assert f"state      {state.lower()}" in status
    assert "the next job on this folder, or millrace job cancel, removes its files" in status
    assert scene.there.locally("--overwrite").code == 0
    scene.check(open_dataset(scene.there.output).run)


@pytest.mark.parametrize("state", ["DONE", "FAILED"])
def test_a_launcher_that_waits_reports_the_commit_whatever_its_runner_says(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A worker that is killed behind the commit fails the job of a runner that repeats nothing."""

    run = runner.started

    @contextlib.contextmanager
    def started(options: JobOptions, build: Any, last: Any) -> Iterator[StubJob]:
        with run(dataclasses.replace(options, runner="FnApiRunner", beam_args=()), build, last):
            yield StubJob(state)

    shutil.rmtree(scene.there.output)
    monkeypatch.setattr(runner, "started", started)
    manifest = run_job(scene.options)
    assert manifest.written == 300
    scene.check(manifest.run)


def test_a_launcher_that_waits_keeps_the_rejects_of_a_job_that_has_failed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(scene.there.output)
    monkeypatch.setattr(runner, "started", lambda *_: contextlib.nullcontext(StubJob("FAILED")))
    with pytest.raises(MillraceError, match="no worker reported an error: one may have been killed"):
        run_job(scene.options)
    assert os.listdir(scene.there.output) == []


def test_a_pipeline_that_the_runner_refuses_leaves_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise MillraceError("the job was not accepted")

    shutil.rmtree(scene.there.output)
    monkeypatch.setattr(runner, "started", refuse)
    with pytest.raises(MillraceError, match="was not accepted"):
        run_job(scene.options)
    assert os.listdir(scene.there.output) == []
    assert scene.there.job("status").code == 2
