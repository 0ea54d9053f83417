"""Manifests for Kubernetes, against the published schemas; requests to Vertex AI, as Google's messages take them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from millrace.cli import main
from millrace.submit.command import VertexOptions
from millrace.submit.vertex import custom_job
from tests.support.commands import ended
from tests.support.manifests import EVERYTHING, IMAGE, TRAIN, documents, variables
from trainer.strategies.cluster import Task, read_cluster

VERSIONS = ("1.31", "1.37")  # the oldest that is maintained where clusters are rented, and the newest of the validator


@dataclasses.dataclass(frozen=True)
class Manifests:
    """What the command wrote."""

    documents: list[dict[str, Any]]

    @property
    def service(self) -> dict[str, Any]:
        (service,) = (document for document in self.documents if document["kind"] == "Service")
        return service

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """The Jobs by role."""
        jobs = (document for document in self.documents if document["kind"] == "Job")
        return {job["metadata"]["labels"]["millrace-role"]: job for job in jobs}


def written(folder: Path, *flags: str, train: Sequence[str] = TRAIN) -> Manifests:
    return Manifests(documents(folder, *flags, train=train))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("flags", [[], EVERYTHING], ids=["a chief", "everything"])
def test_the_published_schema_holds(tmp_path: Path, version: str, flags: list[str]) -> None:
    for document in written(tmp_path, *flags).documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_each_pod_finds_its_role_and_the_others(tmp_path: Path) -> None:
    made = written(tmp_path, *EVERYTHING)
    assert list(made.jobs) == ["chief", "worker", "ps", "evaluator"]
    for role, job in made.jobs.items():
        (container,) = job["spec"]["template"]["spec"]["containers"]
        for index in range(job["spec"]["completions"]):
            environment = variables(container, index)
            cluster = read_cluster(environment)
            assert cluster is not None
            assert cluster.task == Task(role, index)
            assert len(cluster.tasks) == 5
            assert cluster.addresses["worker"] == ("trees-worker-0.trees:2222", "trees-worker-1.trees:2222")
            assert "evaluator" not in json.loads(cluster.tf_config() or "")["cluster"]
            assert environment["A"] == "$(B)"
            # The name that a pod of an indexed Job has, in the Service's domain.
            address = f"{job['metadata']['name']}-{index}.{job['spec']['template']['spec']['subdomain']}"
            assert cluster.addresses[role][index] == f"{address}:2222"


def test_the_service_names_every_pod_from_the_beginning(tmp_path: Path) -> None:
    made = written(tmp_path, *EVERYTHING)
    spec, name = made.service["spec"], made.service["metadata"]["name"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    for job in made.jobs.values():
        template = job["spec"]["template"]
        assert template["spec"]["subdomain"] == name
        assert spec["selector"].items() <= template["metadata"]["labels"].items()


def test_accelerators_are_for_those_who_train(tmp_path: Path) -> None:
    limits = {
        role: job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for role, job in written(tmp_path, *EVERYTHING).jobs.items()
    }
    assert limits["worker"] == limits["chief"] == {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"}
    assert limits["ps"] == limits["evaluator"] == {"cpu": "500m", "memory": "2Gi"}


def test_the_image_has_the_package(tmp_path: Path) -> None:
    (container,) = written(tmp_path).jobs["chief"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "trainer.replica", *TRAIN[1:]]


def test_a_volume_may_hold_data_and_model(tmp_path: Path) -> None:
    train = ["train", "--data_dir", "/mnt/data/out", "--model_dir", "/mnt/data/model"]
    pod = written(tmp_path, "--volume", "data=/mnt/data", train=train).jobs["chief"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/mnt/data"}]
    assert pod["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def test_no_file_is_replaced_that_was_not_to_be(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("mine")
    command = ["submit", "kubernetes", *IMAGE, "--output", str(path)]
    done = ended(main, [*command, "--", *TRAIN])
    assert done.code == 2
    assert f"{path}: already exists; give --overwrite to replace it" in done.err
    assert path.read_text() == "mine"
    assert ended(main, [*command, "--overwrite", "--", *TRAIN]).code == 0
    assert "kind: Job" in path.read_text()


TRAINER_IMAGE = "us-docker.pkg.dev/p/r/millrace:1"
COMMAND = ["python", "-m", "trainer.replica", "--data_dir", "gs://b/data"]


def asked(**flags: Any) -> VertexOptions:
    place: dict[str, Any] = {"project": "p", "region": "us-central1"}
    return VertexOptions(**place, job_name="job", image=TRAINER_IMAGE, **flags)


def message(**flags: Any) -> Any:
    """The request, which Google's client would refuse if it had another field, or a value of another type."""
    from google.cloud import aiplatform_v1

    return aiplatform_v1.CustomJob(custom_job(asked(**flags), COMMAND))


def test_a_chief_alone_is_one_pool() -> None:
    job = message()
    (pool,) = job.job_spec.worker_pool_specs
    assert (job.display_name, pool.replica_count, pool.machine_spec.machine_type) == ("job", 1, "n1-standard-8")
    assert pool.container_spec.image_uri == TRAINER_IMAGE
    assert list(pool.container_spec.command) == COMMAND
    assert {variable.name: variable.value for variable in pool.container_spec.env}["MILLRACE_JOB"] == "job"
    assert not job.job_spec.scheduling.strategy


@pytest.mark.parametrize(
    ("flags", "counts"),
    [
        ({"evaluator": True}, [1, 0, 0, 1]),
        ({"ps": 1}, [1, 0, 1, 1]),
        ({"workers": 3, "ps": 2}, [1, 3, 2, 1]),
    ],
)
def test_a_role_has_its_place_among_the_pools(flags: dict[str, Any], counts: list[int]) -> None:
    pools = message(**flags).job_spec.worker_pool_specs
    assert [pool.replica_count for pool in pools] == counts
    assert all(bool(pool.container_spec.image_uri) == bool(pool.replica_count) for pool in pools)


def test_accelerators_of_vertex_are_for_those_who_train() -> None:
    job = message(workers=2, ps=1, machine_type="n1-standard-16", accelerator="nvidia-tesla-t4:2")
    machines = [pool.machine_spec for pool in job.job_spec.worker_pool_specs]
    assert {machine.machine_type for machine in machines} == {"n1-standard-16"}
    assert [(machine.accelerator_type.name, machine.accelerator_count) for machine in machines] == [
        ("NVIDIA_TESLA_T4", 2),
        ("NVIDIA_TESLA_T4", 2),
        ("ACCELERATOR_TYPE_UNSPECIFIED", 0),
        ("ACCELERATOR_TYPE_UNSPECIFIED", 0),
    ]


def test_everything_else_is_in_its_field() -> None:
    job = message(
        disk_gb=200,
        spot=True,
        timeout_hours=1.5,
        env=("A=b=c",),
        labels=("team=forest", "empty="),
        service_account="trainer@p.iam.gserviceaccount.com",
        network="projects/1/global/networks/n",
        output_dir="gs://b/out",
    )
    spec = job.job_spec
    assert (spec.scheduling.strategy.name, spec.scheduling.timeout.seconds) == ("SPOT", 5400)
    assert dict(job.labels) == {"team": "forest", "empty": ""}
    assert (spec.service_account, spec.network) == ("trainer@p.iam.gserviceaccount.com", "projects/1/global/networks/n")
    assert spec.base_output_directory.output_uri_prefix == "gs://b/out"
    (pool,) = spec.worker_pool_specs
    assert pool.disk_spec.boot_disk_size_gb == 200
    assert {variable.name: variable.value for variable in pool.container_spec.env}["A"] == "b=c"
