"""The role of a process, from the variables that Vertex AI and TensorFlow document."""

from __future__ import annotations

import json

import pytest

from schemas.errors import UsageError
from trainer.replica.cluster import Task, read_cluster

# As in Vertex AI's documentation of distributed training.
POOLS = {
    "workerpool0": ["cmle-training-workerpool0-ab-0:2222"],
    "workerpool1": ["cmle-training-workerpool1-ab-0:2222", "cmle-training-workerpool1-ab-1:2222"],
    "workerpool2": ["cmle-training-workerpool2-ab-0:2222"],
    "workerpool3": ["cmle-training-workerpool3-ab-0:2222"],
}
OF_TENSORFLOW = {"chief": POOLS["workerpool0"], "worker": POOLS["workerpool1"], "ps": POOLS["workerpool2"]}


def cluster_spec(pool: str, index: int, cluster: dict[str, list[str]] | None = None) -> dict[str, str]:
    task = {"type": pool, "index": index, "trial": "1"}
    spec = {"cluster": cluster or POOLS, "environment": "cloud", "task": task, "job": {"workerPoolSpecs": []}}
    return {"CLUSTER_SPEC": json.dumps(spec)}


@pytest.mark.parametrize(
    ("pool", "index", "role"),
    [
        ("workerpool0", 0, "chief"),
        ("workerpool1", 0, "worker"),
        ("workerpool1", 1, "worker"),
        ("workerpool2", 0, "ps"),
        ("workerpool3", 0, "evaluator"),
    ],
)
def test_cluster_spec_becomes_the_tf_config_of_the_role(pool: str, index: int, role: str) -> None:
    cluster = read_cluster(cluster_spec(pool, index))
    assert cluster is not None
    assert cluster.task == Task(role, index)
    config = json.loads(cluster.tf_config() or "")
    assert config == {"cluster": OF_TENSORFLOW, "task": {"type": role, "index": index}}
    assert len(cluster.tasks) == 5


def test_cluster_spec_counts_where_both_are_set() -> None:
    own = {"cluster": OF_TENSORFLOW, "task": {"type": "chief", "index": 0}}
    cluster = read_cluster({**cluster_spec("workerpool0", 0), "TF_CONFIG": json.dumps(own)})
    assert cluster is not None
    assert Task("evaluator", 0) in cluster.tasks


def test_a_chief_alone_trains_evaluates_and_exports_as_a_single_process() -> None:
    cluster = read_cluster(cluster_spec("workerpool0", 0, {"workerpool0": POOLS["workerpool0"]}))
    assert cluster is not None
    assert cluster.tf_config() is None


def test_a_cluster_is_read_back_with_its_evaluators() -> None:
    cluster = read_cluster(cluster_spec("workerpool1", 1))
    assert cluster is not None
    assert read_cluster({"TF_CONFIG": cluster.named()}) == cluster


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}, {"TF_CONFIG": '{"cluster": {}}'}])
def test_no_cluster(environ: dict[str, str]) -> None:
    assert read_cluster(environ) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "ValueError"),
        ("[]", "AttributeError"),
        ('{"cluster": {"chief": ["a:1"]}}', "KeyError: 'task'"),
        ('{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 1}}', "chief-1 is not in the cluster"),
        ('{"cluster": {"boss": ["a:1"]}, "task": {"type": "boss", "index": 0}}', "no role of a training: boss"),
    ],
)
def test_what_names_no_cluster_is_shown(text: str, found: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_cluster({"TF_CONFIG": text})
    assert str(raised.value).startswith("TF_CONFIG: names no cluster")
    assert found in str(raised.value)
