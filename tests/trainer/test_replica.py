"""One process of a training: its role, how it learns that others have ended, and its arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import MillraceError
from tests.support.commands import assert_light
from trainer.replica import command
from trainer.replica.command import Ends
from trainer.strategies.cluster import Task, read_cluster

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


CHIEF, EVALUATOR = Task("chief", 0), Task("evaluator", 0)


def test_all_have_ended_when_each_has_written_so(tmp_path: Path) -> None:
    waiting = Ends(str(tmp_path), "job")
    assert not waiting.done([CHIEF, EVALUATOR])
    Ends(str(tmp_path), "job").write(CHIEF, 0)
    assert not waiting.done([CHIEF, EVALUATOR])
    assert waiting.done([CHIEF])
    assert waiting.done([])
    Ends(str(tmp_path), "job").write(EVALUATOR, 0)
    assert waiting.done([CHIEF, EVALUATOR])


def test_another_job_into_the_same_directory_is_not_meant(tmp_path: Path) -> None:
    Ends(str(tmp_path), "earlier").write(CHIEF, 0)
    assert not Ends(str(tmp_path), "job").done([CHIEF])


def test_a_task_that_is_started_again_has_not_ended(tmp_path: Path) -> None:
    waiting = Ends(str(tmp_path), "job")
    waiting.write(CHIEF, 1)
    assert not waiting.done([CHIEF])
    Ends(str(tmp_path), "job").clear(CHIEF)
    assert not waiting.done([CHIEF])
    waiting.write(CHIEF, 0)
    assert waiting.done([CHIEF])


def test_a_task_that_nobody_starts_again_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "RESTART_SECONDS", 0.0)
    waiting = Ends(str(tmp_path), "job")
    waiting.write(EVALUATOR, 143)
    with pytest.raises(MillraceError, match="evaluator-0: ended with exit code 143, and was not started again"):
        waiting.done([CHIEF, EVALUATOR])


def test_a_store_that_cannot_be_read_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "replicas").write_text("in the place of the folder")
    assert not Ends(str(tmp_path), "job").done([CHIEF])
    (tmp_path / "replicas").unlink()
    Ends(str(tmp_path), "job").write(CHIEF, 0)
    (tmp_path / "replicas" / "job" / "evaluator-0.json").mkdir()
    assert not Ends(str(tmp_path), "job").done([CHIEF, EVALUATOR])


def test_a_mistake_is_answered_before_tensorflow_is_imported() -> None:
    argv = ["--data_dir", "d", "--model_dir", "m", "--max_steps", "0"]
    assert_light("trainer.replica", argv, code=2, message="--max_steps 0: must be 1 or more")
