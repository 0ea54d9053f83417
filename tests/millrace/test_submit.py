"""Manifests for Kubernetes, against the published schemas; requests to Vertex AI, as the messages of Google take them.

That of a TFJob is the CustomResourceDefinition of release 1.9.3 of Kubeflow's training operator (Apache License 2.0,
the Kubeflow authors), which `make test-cloud` takes from the operator's Go module.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from millrace.cli import main
from millrace.submit.command import VertexOptions
from millrace.submit.training import Packages
from millrace.submit.vertex_job import custom_job, tuning_job
from millrace.submit.vertex_study import Study, Trial, best_trial, read_trials
from millrace.tune.space import read_parameters
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


def test_the_validator_finds_a_mistake(tmp_path: Path) -> None:
    job = written(tmp_path).jobs["chief"]
    job["spec"]["completion_mode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError, match="completion_mode"):
        kubernetes_validate.validate(job, VERSIONS[0], strict=True)


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


def test_without_a_staging_bucket_the_image_has_the_package(tmp_path: Path) -> None:
    (container,) = written(tmp_path).jobs["chief"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "trainer.replica", *TRAIN[1:]]


def test_a_volume_may_hold_data_and_model(tmp_path: Path) -> None:
    train = ["train", "--data_dir", "/mnt/data/out", "--model_dir", "/mnt/data/model"]
    pod = written(tmp_path, "--volume", "data=/mnt/data", train=train).jobs["chief"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/mnt/data"}]
    assert pod["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.mark.parametrize(("code", "said"), [(0, "applied    "), (1, "kubectl failed with exit code 1: no cluster")])
def test_kubectl_applies_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n[ {code} = 0 ] || echo no cluster >&2\nexit {code}\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:/bin:/usr/bin")
    path = tmp_path / "jobs.yaml"
    done = ended(main, ["submit", "kubernetes", *IMAGE, "--output", str(path), "--apply", "--", *TRAIN])
    assert done.code == code
    assert said in done.out + done.err
    assert (tmp_path / "asked").read_text() == f"apply -f {path}\n"
    assert path.exists()


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


def test_manifests_are_put_in_place_of_files_only(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").symlink_to(tmp_path / "elsewhere")
    done = ended(main, ["submit", "kubernetes", *IMAGE, "--output", str(tmp_path / "jobs.yaml"), "--", *TRAIN])
    assert done.code == 2
    assert "jobs.yaml: is a link, which a file would replace" in done.err


CLOUD = Path(__file__).parents[2] / ".cloud"


@pytest.fixture(scope="module")
def schema() -> Any:
    """The schema of a TFJob, by which a field that it does not name is a mistake."""
    found = sorted(CLOUD.glob("tfjobs-*.yaml"))
    if not found:
        pytest.fail(f"{CLOUD}/tfjobs-*.yaml: missing; run make test-cloud", pytrace=False)
    definition = yaml.load(found[-1].read_bytes(), yaml.CSafeLoader)
    (version,) = definition["spec"]["versions"]
    return strict(version["schema"]["openAPIV3Schema"])


def strict(schema: Any) -> Any:
    """The same, but objects have no other properties, as `kubectl apply --validate=strict` has it."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(each) for name, each in schema.items()}
    closed = isinstance(found.get("properties"), dict) and "additionalProperties" not in found
    return {**found, "additionalProperties": False} if closed else found


def tfjob(folder: Path, *flags: str) -> dict[str, Any]:
    (job,) = documents(folder, "--kind", "tfjob", *flags)
    return job


def tf_config(job: dict[str, Any], role: str, index: int) -> str:
    """What the operator sets for a pod, by its `genClusterSpec`: the roles in lower case, evaluators among them."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    cluster = {}
    for each, replicas in job["spec"]["tfReplicaSpecs"].items():
        (container,) = replicas["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow"
        (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "tfjob-port")
        hosts = [f"{name}-{each.lower()}-{i}.{namespace}.svc:{port}" for i in range(replicas["replicas"])]
        cluster[each.lower()] = hosts
    return json.dumps({"cluster": cluster, "task": {"type": role.lower(), "index": index}, "environment": "cloud"})


def test_each_pod_of_a_tfjob_finds_its_role_and_the_others(tmp_path: Path) -> None:
    job = tfjob(tmp_path, *EVERYTHING)
    replicas = job["spec"]["tfReplicaSpecs"]
    assert {role: each["replicas"] for role, each in replicas.items()} == {
        "Chief": 1,
        "Worker": 2,
        "PS": 1,
        "Evaluator": 1,
    }
    for role, each in replicas.items():
        (container,) = each["template"]["spec"]["containers"]
        environment = variables(container, 0)
        assert (environment["MILLRACE_JOB"], environment["A"]) == ("trees", "$(B)")
        assert "TF_CONFIG" not in environment
        cluster = read_cluster({"TF_CONFIG": tf_config(job, role, 0)})
        assert cluster is not None
        assert cluster.task == Task(role.lower(), 0)
        assert len(cluster.tasks) == 5  # the chief waits for the evaluator
        assert json.loads(cluster.tf_config() or "")["cluster"].keys() == {"chief", "worker", "ps"}


def test_a_chief_alone_is_one_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tfjob(tmp_path)
    assert list(job["spec"]["tfReplicaSpecs"]) == ["Chief"]
    (container,) = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "trainer.replica", *TRAIN[1:]]
    told = capsys.readouterr().out
    assert "kubectl logs -f trees-chief-0 -n default" in told
    assert "kubectl delete tfjob trees -n default" in told


@pytest.mark.cloud
@pytest.mark.parametrize("flags", [[], EVERYTHING], ids=["a chief", "everything"])
def test_the_published_schema_of_a_tfjob_holds(tmp_path: Path, schema: Any, flags: list[str]) -> None:
    jsonschema.Draft202012Validator(schema).validate(tfjob(tmp_path, *flags))


@pytest.mark.cloud
def test_the_schema_of_a_tfjob_finds_a_mistake(tmp_path: Path, schema: Any) -> None:
    job = tfjob(tmp_path)
    for place in (job["spec"]["runPolicy"], job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]):
        place["backoff_limit"] = 3
        with pytest.raises(jsonschema.ValidationError, match="backoff_limit"):
            jsonschema.Draft202012Validator(schema).validate(job)
        del place["backoff_limit"]


TRAINER_IMAGE = "us-docker.pkg.dev/p/r/millrace:1"
COMMAND = Packages("gs://b/staging/job", {}).command(("--data_dir", "gs://b/data"))


ALL = [
    "learning_rate=double:0.0001:0.1:log",
    "units=integer:1:8",
    "batch_size=discrete:64:128:256",
    "hidden_units=categorical:256,128:512,256",
]


def asked(**flags: Any) -> VertexOptions:
    place: dict[str, Any] = {"project": "p", "region": "us-central1", "staging_bucket": "gs://b/staging"}
    return VertexOptions(**place, job_name="job", image=TRAINER_IMAGE, **flags)


def message(**flags: Any) -> Any:
    """The request, which Google's client would refuse if it had another field, or a value of another type."""
    from google.cloud import aiplatform_v1

    return aiplatform_v1.CustomJob(custom_job(asked(**flags), COMMAND))


def study(**settings: Any) -> Study:
    return Study(**{"parameters": read_parameters(ALL, "--tune"), "metric": "auc", **settings})


def study_message(of: Study) -> Any:
    from google.cloud import aiplatform_v1

    return aiplatform_v1.HyperparameterTuningJob(tuning_job(asked(output_dir="gs://b/out"), COMMAND, of))


def test_a_chief_alone_is_one_pool() -> None:
    job = message()
    (pool,) = job.job_spec.worker_pool_specs
    assert (job.display_name, pool.replica_count, pool.machine_spec.machine_type) == ("job", 1, "n1-standard-8")
    assert pool.container_spec.image_uri == TRAINER_IMAGE
    assert list(pool.container_spec.command) == COMMAND
    assert {each.name: each.value for each in pool.container_spec.env}["MILLRACE_JOB"] == "job"
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
    found = message(**flags).job_spec.worker_pool_specs
    assert [pool.replica_count for pool in found] == counts
    assert all(bool(pool.container_spec.image_uri) == bool(pool.replica_count) for pool in found)


def test_machines_and_accelerators_are_given_by_role() -> None:
    job = message(
        workers=2,
        ps=1,
        machine_type=("n1-standard-16", "ps=n1-highmem-4", "evaluator=n1-standard-4"),
        accelerator=("nvidia-tesla-t4:2", "evaluator=NVIDIA_L4:1"),
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
        env=("A=b=c",),
        labels=("team=forest", "empty="),
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


def test_parameters_are_of_the_kinds_and_scales_that_were_asked_for() -> None:
    rate, units, batch, hidden = study_message(study()).study_spec.parameters
    assert (rate.parameter_id, rate.scale_type.name) == ("learning_rate", "UNIT_LOG_SCALE")
    assert (rate.double_value_spec.min_value, rate.double_value_spec.max_value) == (0.0001, 0.1)
    assert (units.integer_value_spec.min_value, units.integer_value_spec.max_value) == (1, 8)
    assert units.scale_type.name == "SCALE_TYPE_UNSPECIFIED"
    assert list(batch.discrete_value_spec.values) == [64, 128, 256]
    assert list(hidden.categorical_value_spec.values) == ["256,128", "512,256"]


def test_trials_are_jobs_like_others() -> None:
    job = study_message(study(trials=20, parallel_trials=4, failed_trials=3))
    assert (job.display_name, job.max_trial_count, job.parallel_trial_count, job.max_failed_trial_count) == (
        "job",
        20,
        4,
        3,
    )
    (pool,) = job.trial_job_spec.worker_pool_specs
    assert list(pool.container_spec.command) == COMMAND
    assert job.trial_job_spec.base_output_directory.output_uri_prefix == "gs://b/out"


@pytest.mark.parametrize(
    ("metric", "goal"), [("auc", "MAXIMIZE"), ("average_loss", "MINIMIZE"), ("rmse/w", "MINIMIZE")]
)
def test_the_goal_is_that_by_which_the_best_export_is_chosen(metric: str, goal: str) -> None:
    spec = study_message(study(metric=metric)).study_spec
    assert [(each.metric_id, each.goal.name) for each in spec.metrics] == [(metric, goal)]
    assert spec.measurement_selection_type.name == "BEST_MEASUREMENT"


@pytest.mark.parametrize(("search", "name"), [("bayesian", "ALGORITHM_UNSPECIFIED"), ("random", "RANDOM_SEARCH")])
def test_the_search_is_named_as_google_does(search: str, name: str) -> None:
    assert study_message(study(search=search)).study_spec.algorithm.name == name


def test_the_best_trial_is_the_one_with_the_best_value_that_is_a_number() -> None:
    from google.cloud import aiplatform_v1

    def trial(own: int, state: str, value: float | None) -> dict[str, Any]:
        metrics = [] if value is None else [{"metric_id": "auc", "value": value}]
        return {"id": str(own), "state": state, "final_measurement": {"step_count": 7, "metrics": metrics}}

    values = [
        trial(10, "SUCCEEDED", 0.7),
        trial(2, "SUCCEEDED", 0.9),
        trial(9, "INFEASIBLE", None),
        trial(3, "SUCCEEDED", float("nan")),
    ]
    trials = read_trials(aiplatform_v1.HyperparameterTuningJob(trials=values), "auc")
    assert [each.id for each in trials] == ["2", "3", "9", "10"]
    best, worst = best_trial(trials, study()), best_trial(trials, study(metric="loss"))
    assert best is not None
    assert worst is not None
    assert (best.id, best.value, best.step, worst.id) == ("2", 0.9, 7, "10")
    assert best_trial(trials[1:3], study()) is None


def test_a_trial_is_told_in_one_line() -> None:
    found = Trial("3", "SUCCEEDED", {"learning_rate": 0.01, "units": 64.0, "decay": "true"}, 0.873456, 4000, "")
    assert found.told("auc") == "  3  succeeded, auc 0.873456 at step 4,000: learning_rate=0.01 units=64 decay=true"
    failed = Trial("12", "INFEASIBLE", {"units": 64.0}, None, None, "exit code 2")
    assert failed.told("auc") == " 12  infeasible (exit code 2): units=64"
