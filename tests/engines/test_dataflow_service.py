"""The tests' own Dataflow service: what Beam's client sees of a job, and what the job's workers have."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.runtime.job import run_job
from schemas.dataset import open_dataset
from schemas.storage import folders
from tests.support.people import LEAN_SCHEMA, people_csv

pytestmark = pytest.mark.cloud


def test_a_job_runs_on_it_with_the_staged_package_alone(running_cloud, dataflow, setup_file, tmp_path: Path) -> None:
    bucket = running_cloud.new_bucket()
    (tmp_path / "schema.yaml").write_text(LEAN_SCHEMA)
    (tmp_path / "people.csv").write_text(people_csv(300))
    folders.upload(str(tmp_path / "people.csv"), f"{bucket}/people.csv")
    run_job(
        JobOptions(
            schema=str(tmp_path / "schema.yaml"),
            input=(f"{bucket}/people.csv",),
            output=f"{bucket}/out",
            runner="DataflowRunner",
            beam_args=dataflow.beam_args(bucket, setup_file=setup_file),
        )
    )
    assert open_dataset(f"{bucket}/out").manifest.written == 300
    job = list(dataflow.jobs.values())[-1]
    assert job.state == "JOB_STATE_DONE"
    assert job.staged.packages == ("workflow.tar.gz",)
