"""A Dataflow service that cannot be asked, or refuses: one line that says what and what to do, and nothing is left."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api_core import exceptions

from beam_jobs.engines.dataflow import explain
from schemas import storage
from tests.support import commands, dead_ends
from tests.support.cloud import Cloud
from tests.support.dataflow_service import DataflowService
from tests.support.submitting import Submitting, raw_rows


@pytest.fixture
def there(cloud: Cloud, bucket: str, dataflow: DataflowService, tmp_path: Path) -> Submitting:
    storage.write_bytes(f"{bucket}/people.csv", raw_rows(tmp_path))
    return Submitting(tmp_path, bucket, "DataflowRunner", dataflow.beam_args(bucket))


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
    ("status", "said"),
    [
        (401, "there are no usable credentials (Anonymous credentials cannot be refreshed): run `gcloud auth"),
        (403, "it answers 403 Forbidden; the account needs roles/dataflow.developer, and the project the Dataflow API"),
        (404, "it answers 404 Not Found; check --project, --region and --dataflow_endpoint"),
    ],
)
def test_a_service_that_refuses_a_job_is_one_line(
    there: Submitting, dataflow: DataflowService, status: int, said: str
) -> None:
    with answering(dataflow, status):
        line = refused(there)
    assert line.startswith(f"error: {dataflow.endpoint}: the job was not accepted: {said}")


def test_an_endpoint_where_nothing_listens_is_one_line(there: Submitting) -> None:
    with dead_ends.nobody() as address:
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
    ("error", "said"),
    [
        (exceptions.Unauthorized("POST https://x: no"), "it answers 401 Unauthorized: no; it does not know the cred"),
        (exceptions.Forbidden("POST https://x/jobs: not you"), "it answers 403 Forbidden: not you; the account needs"),
        (exceptions.ServiceUnavailable("<html>busy</html>"), "it answers 503 Service Unavailable; run the command"),
        (exceptions.RetryError("timed out", exceptions.NotFound("no job")), "it answers 404 Not Found: no job; check"),
        (ValueError("of our own"), None),
    ],
)
def test_what_the_service_says_is_kept_and_pages_are_not(error: Exception, said: str | None) -> None:
    assert (found := explain(error)) == said or (said is not None and found is not None and said in found)
