"""The TFJob, as Kubeflow's training operator reads it, and against the schema that the operator publishes.

The schema is the CustomResourceDefinition of its release 1.9.3 (Apache License 2.0, the Kubeflow authors), which
`make test-cloud` takes from the operator's Go module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.manifests import EVERYTHING, TRAIN, documents, variables
from trainer.strategies.cluster import Task, read_cluster

CLOUD = Path(__file__).parents[3] / ".cloud"


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


def written(folder: Path, *flags: str) -> dict[str, Any]:
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


def test_each_pod_finds_its_role_and_the_others(tmp_path: Path) -> None:
    job = written(tmp_path, *EVERYTHING)
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
    job = written(tmp_path)
    assert list(job["spec"]["tfReplicaSpecs"]) == ["Chief"]
    (container,) = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "trainer.replica", *TRAIN[1:]]
    told = capsys.readouterr().out
    assert "kubectl logs -f trees-chief-0 -n default" in told
    assert "kubectl delete tfjob trees -n default" in told


@pytest.mark.cloud
@pytest.mark.parametrize("flags", [[], EVERYTHING], ids=["a chief", "everything"])
def test_the_published_schema_holds(tmp_path: Path, schema: Any, flags: list[str]) -> None:
    jsonschema.Draft202012Validator(schema).validate(written(tmp_path, *flags))


@pytest.mark.cloud
def test_the_schema_finds_a_mistake(tmp_path: Path, schema: Any) -> None:
    job = written(tmp_path)
    for place in (job["spec"]["runPolicy"], job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]):
        place["backoff_limit"] = 3
        with pytest.raises(jsonschema.ValidationError, match="backoff_limit"):
            jsonschema.Draft202012Validator(schema).validate(job)
        del place["backoff_limit"]
