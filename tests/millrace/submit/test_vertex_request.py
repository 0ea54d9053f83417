"""The request for a CustomJob, as Google's own message takes it."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.submit.package import Packages
from millrace.submit.training import Pools
from millrace.submit.vertex_job import JobSettings, custom_job

IMAGE = "us-docker.pkg.dev/p/r/millrace:1"
COMMAND = Packages("gs://b/staging/job", {}).command(("--data_dir", "gs://b/data"))


def message(**settings: Any) -> Any:
    """The request, which Google's client would refuse if it had another field, or a value of another type."""
    from google.cloud import aiplatform_v1

    defaults: dict[str, Any] = {"name": "job", "pools": Pools(), "image": IMAGE}
    return aiplatform_v1.CustomJob(custom_job(JobSettings(**{**defaults, **settings}), COMMAND))


def test_a_chief_alone_is_one_pool() -> None:
    job = message()
    (pool,) = job.job_spec.worker_pool_specs
    assert (job.display_name, pool.replica_count, pool.machine_spec.machine_type) == ("job", 1, "n1-standard-8")
    assert pool.container_spec.image_uri == IMAGE
    assert list(pool.container_spec.command) == COMMAND
    assert {each.name: each.value for each in pool.container_spec.env}["MILLRACE_JOB"] == "job"
    assert not job.job_spec.scheduling.strategy


@pytest.mark.parametrize(
    ("pools", "counts"),
    [
        (Pools(evaluator=True), [1, 0, 0, 1]),
        (Pools(ps=1), [1, 0, 1, 1]),
        (Pools(workers=3, ps=2), [1, 3, 2, 1]),
    ],
)
def test_a_role_has_its_place_among_the_pools(pools: Pools, counts: list[int]) -> None:
    found = message(pools=pools).job_spec.worker_pool_specs
    assert [pool.replica_count for pool in found] == counts
    assert all(bool(pool.container_spec.image_uri) == bool(pool.replica_count) for pool in found)


def test_machines_and_accelerators_are_given_by_role() -> None:
    job = message(
        pools=Pools(workers=2, ps=1),
        machine_type=["n1-standard-16", "ps=n1-highmem-4", "evaluator=n1-standard-4"],
        accelerator=["nvidia-tesla-t4:2", "evaluator=NVIDIA_L4:1"],
    )
    machines = [pool.machine_spec for pool in job.job_spec.worker_pool_specs]
    types = [machine.machine_type for machine in machines]
    assert types == ["n1-standard-16", "n1-standard-16", "n1-highmem-4", "n1-standard-4"]
    assert [(machine.accelerator_type.name, machine.accelerator_count) for machine in machines] == [
        ("NVIDIA_TESLA_T4", 2),
        ("NVIDIA_TESLA_T4", 2),
        ("ACCELERATOR_TYPE_UNSPECIFIED", 0),
        ("NVIDIA_L4", 1),
    ]


def test_everything_else_is_in_its_field() -> None:
    job = message(
        disk_gb=200,
        spot=True,
        restart_job=True,
        timeout_hours=1.5,
        variables={"A": "b=c"},
        labels={"team": "forest", "empty": ""},
        service_account="trainer@p.iam.gserviceaccount.com",
        network="projects/1/global/networks/n",
        tensorboard="projects/p/locations/us-central1/tensorboards/7",
        output_dir="gs://b/out",
    )
    spec = job.job_spec
    assert (spec.scheduling.strategy.name, spec.scheduling.timeout.seconds) == ("SPOT", 5400)
    assert spec.scheduling.restart_job_on_worker_restart
    assert dict(job.labels) == {"team": "forest", "empty": ""}
    assert (spec.service_account, spec.network) == ("trainer@p.iam.gserviceaccount.com", "projects/1/global/networks/n")
    assert spec.tensorboard == "projects/p/locations/us-central1/tensorboards/7"
    assert spec.base_output_directory.output_uri_prefix == "gs://b/out"
    (pool,) = spec.worker_pool_specs
    assert pool.disk_spec.boot_disk_size_gb == 200
    assert {each.name: each.value for each in pool.container_spec.env}["A"] == "b=c"
