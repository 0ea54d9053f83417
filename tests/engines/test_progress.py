"""Progress where workers are in other processes: the runner's metrics count records, bytes and rejects."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.runners.portability.job_server import ExternalJobServer

from beam_jobs.core import workers
from beam_jobs.core.options import RunnerOptions
from beam_jobs.core.progress import Counters
from beam_jobs.engines import jobs
from beam_jobs.engines.dataflow import DataflowJob
from beam_jobs.engines.portable import PortableJob
from schemas.storage import folders
from tests.support.datasets import Folder, folder_of_people
from tests.support.people import MEASURED_SCHEMA, people_csv


@pytest.fixture
def people(tmp_path: Path) -> Folder:
    """300 rows and 6 bad ones."""
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * 6)
    return job


def assert_all_rows_are_counted(counters: dict[str, int], people: Folder) -> None:
    size = people.raw.stat().st_size - people.raw.read_text().index("\n") - 1  # without the header
    for phase in ("analyzing", "transforming"):
        assert (counters[f"{phase}/read"], counters[f"{phase}/rejected"]) == (306, 6)
        assert 0 <= people.raw.stat().st_size - counters[f"{phase}/done"] <= people.raw.stat().st_size - size
    assert counters["writing/read"] == 300


@pytest.mark.engines
def test_prism_counts_rows_bytes_and_rejects(prism, people, capsys) -> None:
    people.run(runner="PortableRunner", beam_args=prism.beam_args, range_mb=0.01, quiet=False)
    printed = capsys.readouterr().err
    (job_id,) = (line.split()[1].rstrip(":") for line in printed.splitlines() if line.startswith("job "))
    assert f"job {job_id}: {prism.job_endpoint}" in printed.splitlines()
    job = PortableJob(ExternalJobServer(prism.job_endpoint, 60).start(), job_id, "")
    assert job.state() == "DONE"
    assert_all_rows_are_counted(dict(job.counters()), people)


@pytest.mark.cloud
def test_dataflow_counts_rows_bytes_and_rejects(running_cloud, dataflow, people, capsys) -> None:
    bucket = running_cloud.new_bucket()
    folders.upload(str(people.raw), f"{bucket}/people.csv")
    beam_args = dataflow.beam_args(bucket)
    changes = {"runner": "DataflowRunner", "beam_args": beam_args, "quiet": False, "range_mb": 0.01}
    people.run(input=(f"{bucket}/people.csv",), output=f"{bucket}/out", **changes)
    printed = capsys.readouterr().err
    job_id = list(dataflow.jobs)[-1]
    assert f"https://console.cloud.google.com/dataflow/jobs/us-central1/{job_id}?project=tests" in printed
    job = DataflowJob(jobs.reference(RunnerOptions(runner="DataflowRunner", beam_args=beam_args), job_id))
    assert job.state() == "DONE"
    assert_all_rows_are_counted(dict(job.counters()), people)


@pytest.mark.parametrize(
    ("counters", "shown"),
    [
        ({}, Counters(phase="waiting for workers", total=100)),
        ({"analyzing/read": 3, "analyzing/done": 30}, Counters(phase="analyzing", total=100, read=3, done=30)),
        (
            {"analyzing/read": 9, "analyzing/done": 100, "transforming/read": 2, "transforming/rejected": 1},
            Counters(phase="transforming", total=100, read=2, rejected=1),
        ),
        ({"ingesting/read": 5, "ingesting/done": 5, "writing/read": 2}, Counters(phase="writing", total=100, read=2)),
    ],
)
def test_the_latest_phase_that_has_begun_is_shown(counters: dict[str, int], shown: Counters) -> None:
    assert workers.as_progress(counters, total=100) == shown
