"""Jobs on the tests' Dataflow service that go on without their launcher, or that the service refuses."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.dataflow import Job

from beam_jobs import flex_template
from beam_jobs.engines import runner
from beam_jobs.engines.dataflow import explain
from beam_jobs.runs import commit
from schemas import storage
from schemas.dataset import command, open_dataset
from schemas.dataset.verify import verify_dataset
from tests.support import commands, prism
from tests.support.cloud import Cloud
from tests.support.commands import ended
from tests.support.dataflow_service import REGION, DataflowService
from tests.support.datasets import Submitting, raw_rows
from tests.support.processes import until


@pytest.fixture
def there(cloud: Cloud, bucket: str, dataflow: DataflowService, tmp_path: Path) -> Submitting:
    storage.write_bytes(f"{bucket}/people.csv", raw_rows(tmp_path))
    return Submitting(tmp_path, bucket, "DataflowRunner", dataflow.beam_args(bucket))


def test_a_killed_launchers_job_commits(there: Submitting, dataflow: DataflowService) -> None:
    """It is submitted, holds the output while it runs, and commits when nobody waits for it any more."""
    with dataflow.queueing():
        submitted = there.preprocess("--no_wait", "--json")
        assert submitted.code == 0, submitted.err
        run, job = submitted.data["run"], submitted.data["job"]
        assert job["id"] == list(dataflow.jobs)[-1]
        assert f"https://console.cloud.google.com/dataflow/jobs/{REGION}/{job['id']}" in job["url"]
        assert there.is_held_remotely

        assert there.job("status", "--json").data["state"] == "running"
        other = there.preprocess("--overwrite", "--break_lease")  # which is for jobs that cannot be asked about
        assert other.code == 1
        assert run in other.err
        assert job["id"] in other.err
        assert command.main(["prune", there.output]) != 0

    assert there.wait().data["state"] == "committed"
    dataset = open_dataset(there.output)
    assert (dataset.run, dataset.manifest.written, dataset.manifest.rejected) == (run, 300, 3)
    assert verify_dataset(there.output) == []
    assert storage.listdir(there.output) == [run, "manifest.json"]
    assert not [name for name in storage.listdir(dataset.run_dir) if name == "staging"]
    (package,) = dataflow.jobs[job["id"]].staged.packages
    assert package.startswith("millrace_ml-")

    there.assert_as_locally(dataset)


def test_a_last_step_that_is_repeated_and_one_that_comes_late_change_nothing(
    there: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service does whose worker was killed in the commit, before or after the manifest was written."""
    steps: list[Any] = []
    run = runner.started

    def started(options: Any, build: Any, last: Any) -> Any:
        here = dataclasses.replace(options, runner="FnApiRunner", beam_args=(), no_wait=False)
        return run(here, build, lambda: steps.append(last))

    with monkeypatch.context() as patch:
        patch.setattr(runner, "started", started)
        assert there.preprocess("--no_wait").code == 0
    (last,) = steps
    with monkeypatch.context() as patch:
        patch.setattr(commit, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            last()
    assert not storage.exists(f"{there.output}/manifest.json")
    for _ in range(2):
        last()
        assert there.job("status", "--json").data["state"] == "committed"
        assert storage.listdir(there.output) == [last.run.id, "manifest.json"]
        assert verify_dataset(there.output) == []
    assert there.locally("--overwrite").code == 0
    last()
    assert open_dataset(there.output).run != last.run.id
    assert verify_dataset(there.output) == []


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_job_is_cancelled_and_its_run_is_removed(there: Submitting, dataflow: DataflowService) -> None:
    with dataflow.queueing():
        submitted = there.preprocess("--no_wait", "--json")
        cancelled = there.job("cancel")
    assert cancelled.code == 0, cancelled.err
    assert "has been cancelled" in cancelled.out
    assert dataflow.jobs[submitted.data["job"]["id"]].state == "JOB_STATE_CANCELLED"
    assert storage.listdir(there.output) == []
    assert there.job("status").code == 2
    assert there.job("cancel").code == 2


def test_a_service_that_does_not_answer_frees_nothing(
    there: Submitting, dataflow: DataflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beam_jobs.engines import dataflow as engine

    monkeypatch.setattr(engine, "ANSWER_SECONDS", 20.0)
    with dataflow.queueing():
        submitted = there.preprocess("--no_wait", "--json").data
        run = submitted["run"]
        dataflow.status = 503
        try:
            for ended in (there.job("status"), there.job("cancel"), there.preprocess()):
                assert ended.code == 1
                assert len(ended.err.splitlines()) == 1
                assert "cannot be asked: it answers 503 Service Unavailable; run the command again later" in ended.err
            assert there.is_held_remotely
            assert run in storage.listdir(there.output)
            assert "give --break_lease" in there.preprocess().err
            broken = there.locally("--break_lease")
            assert broken.code == 0, broken.err
            assert run not in storage.listdir(there.output)
        finally:
            dataflow.status = None
    # What the job wrote while nobody could ask about it is refused.
    until(lambda: list(dataflow.jobs.values())[-1].state in ("JOB_STATE_DONE", "JOB_STATE_FAILED"), "the job ends")
    assert verify_dataset(there.output) == []
    assert open_dataset(there.output).run != run


def test_a_job_that_fails_there_ends_in_its_own_words_and_keeps_its_rejects(
    there: Submitting, dataflow: DataflowService
) -> None:
    storage.write_bytes(f"{there.place}/people.csv", raw_rows(there.folder) + b"too,few\n" * 200)
    ended = there.preprocess("--max_reject_fraction", "0.001", "--max_rejects", "5")
    assert ended.code == 1
    assert "--max_rejects 5" in ended.err
    assert "too_few_columns" in ended.err
    assert "Traceback" not in ended.err
    assert storage.listdir(there.output) == ["failed"]
    (run,) = storage.listdir(f"{there.output}/failed")
    assert "summary.json" in storage.listdir(f"{there.output}/failed/{run}")
    assert there.holder() is None


def test_a_job_that_a_flex_template_begins_is_found_by_its_name(there: Submitting, dataflow: DataflowService) -> None:
    """The launcher of a template has the job written to a file; the service begins it when the launcher has ended."""
    written = f"{there.place}/template_launches/job_object"
    argv = [*there.argv(), *there.beam_args, "--template_location", written, "--job_name", "template-1"]
    launched = ended(flex_template.main, argv)
    assert launched.code == 0, launched.err
    assert there.is_held_remotely
    early = there.job("status")
    assert early.code == 1
    assert "job template-1 of DataflowRunner: 0 jobs of this name were found" in early.err

    dataflow.submit(Job.from_json(storage.read_bytes(written)))
    assert there.wait().data["state"] == "committed"
    assert open_dataset(there.output).manifest.written == 300
    assert verify_dataset(there.output) == []


def test_the_launcher_of_a_template_must_say_where_and_under_what_name(there: Submitting) -> None:
    for flags, missing in (((), "--template_location"), (("--template_location=gs://b/t",), "--job_name")):
        launched = ended(flex_template.main, [*there.argv(), *there.beam_args, *flags])
        assert launched.code == 2
        assert f"{missing}: missing; the launcher of a Flex Template gives it" in launched.err


@contextlib.contextmanager
def answering(dataflow: DataflowService, status: int) -> Iterator[None]:
    dataflow.status = status
    try:
        yield
    finally:
        dataflow.status = None


def refused(there: Submitting, *more: str) -> str:
    """The one line that the command ends with."""
    code, printed = commands.run(*there.argv(), "--runner", there.runner, *there.beam_args, *more)
    assert code == 1
    (line,) = printed
    assert storage.listdir(there.output) == []
    return line


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "there are no usable credentials (Anonymous credentials cannot be refreshed): run `gcloud auth"),
        (403, "it answers 403 Forbidden; the account needs roles/dataflow.developer, and the project the Dataflow API"),
        (404, "it answers 404 Not Found; check --project, --region and --dataflow_endpoint"),
    ],
)
def test_a_service_that_refuses_a_job_is_one_line(
    there: Submitting, dataflow: DataflowService, status: int, message: str
) -> None:
    with answering(dataflow, status):
        line = refused(there)
    assert line.startswith(f"error: {dataflow.endpoint}: the job was not accepted: {message}")


def test_an_endpoint_where_nothing_listens_is_one_line(there: Submitting) -> None:
    with prism.nobody() as address:
        line = refused(there, "--no_wait", "--dataflow_endpoint", f"http://{address}")
    assert line.startswith(
        f"error: http://{address}: the job was not accepted: nothing answers there (ConnectionError)"
    )


def test_missing_credentials_are_one_line(there: Submitting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where no login is
    without = tuple(arg for arg in there.beam_args if arg != "--no_auth")
    line = refused(dataclasses.replace(there, beam_args=without))
    assert line.startswith("error: Dataflow: there are no usable credentials (")
    assert "run `gcloud auth application-default login`" in line


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (exceptions.Unauthorized("POST https://x: no"), "it answers 401 Unauthorized: no; it does not know the cred"),
        (exceptions.Forbidden("POST https://x/jobs: not you"), "it answers 403 Forbidden: not you; the account needs"),
        (exceptions.ServiceUnavailable("<html>busy</html>"), "it answers 503 Service Unavailable; run the command"),
        (exceptions.RetryError("timed out", exceptions.NotFound("no job")), "it answers 404 Not Found: no job; check"),
        (ValueError("of our own"), None),
    ],
)
def test_what_the_service_says_is_kept_and_pages_are_not(error: Exception, message: str | None) -> None:
    assert (explanation := explain(error)) == message or (
        message is not None and explanation is not None and message in explanation
    )
