"""Clusters: what TF_CONFIG must name, when a worker begins, and tasks that are killed."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import tensorflow as tf

from schemas.errors import UsageError
from tests.support.processes import until
from tests.support.task_cluster import free_ports, task_cluster
from tests.support.training import ALL_STEPS
from trainer.strategies.cluster import Cluster, Task, check_cluster, initialized

pytestmark = pytest.mark.long

WHOLE = {"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}

CHIEF_AND_WORKER = {"chief": ["a:1"], "worker": ["c:1"]}


def environment(cluster: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})}


@pytest.mark.parametrize(
    ("strategy", "variables"),
    [
        ("none", {}),
        ("none", environment(WHOLE)),
        ("mirrored", {}),
        ("mirrored", {"TF_CONFIG": "{}"}),
        ("parameter_server", environment(WHOLE)),
        (
            "none",
            {"TF_CONFIG": Cluster({"chief": ("a:1",), "evaluator": ("b:1",)}, Task("chief", 0)).tf_config() or ""},
        ),
        ("none", {"TF_CONFIG": '{"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}'}),
    ],
)
def test_accepts(strategy, variables):
    check_cluster(strategy, variables)


@pytest.mark.parametrize(
    ("strategy", "variables", "message"),
    [
        ("parameter_server", {}, "--strategy parameter_server: TF_CONFIG names no cluster; expected"),
        ("parameter_server", environment({"chief": ["a:1"]}), "TF_CONFIG names chief; expected a cluster of chief, ps"),
        ("mirrored", environment(WHOLE), "--strategy mirrored: replicas on one machine, but TF_CONFIG names a cluster"),
        (
            "none",
            environment(CHIEF_AND_WORKER),
            "but no parameter servers that hold the variables; add ps",
        ),
        ("none", environment({"chief": ["a:1"]}), "TF_CONFIG: names a chief alone, .* Unset it to train,"),
        ("none", environment({"ps": ["a:1"]}), "TF_CONFIG: its task is chief-0, which is not in its cluster"),
        (
            "none",
            {"TF_CONFIG": '{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker"}}'},
            "TF_CONFIG: names ps, worker, but no chief, which saves the checkpoints",
        ),
        (
            "none",
            {"TF_CONFIG": '{"cluster": {"master": ["a:1"]}, "task": {"type": "master", "index": 0}}'},
            "TF_CONFIG: names master; expected the roles chief, worker, ps, evaluator. What TensorFlow 1 called master",
        ),
        ("none", {"TF_CONFIG": '{"task": {"type": "chief"}}'}, "TF_CONFIG: names a task, but no cluster; to train in"),
        ("none", {"TF_CONFIG": '{"cluster": {"chief": ["a:1"]}}'}, "TF_CONFIG: names a cluster, but no task, this"),
        ("none", {"TF_CONFIG": "{cluster"}, "TF_CONFIG: expected a JSON object"),
        ("none", {"TF_CONFIG": "[]"}, "TF_CONFIG: expected a JSON object"),
    ],
)
def test_refuses(strategy, variables, message):
    with pytest.raises(UsageError, match=message):
        check_cluster(strategy, variables)


def test_a_worker_sees_when_the_chief_has_begun():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert not initialized(address)  # no server yet
    server = tf.distribute.Server({"ps": [address]}, job_name="ps", task_index=0)
    assert not initialized(address)
    with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
        session.run(tf.compat.v1.train.get_or_create_global_step().initializer)
    assert initialized(address)


def steps_saved(model_dir: Path) -> int:
    """The step of the last checkpoint; -1 without one."""
    return max((int(path.stem.split("-")[1]) for path in model_dir.glob("model.ckpt-*.index")), default=-1)


@pytest.mark.slow
def test_any_task_may_be_killed_and_started_again(late, tmp_path):
    model = tmp_path / "model"
    flags = ["--data_dir", late.path, "--model_dir", model, "--model", "tests.support.own_models:slow_steps"]
    flags += ["--strategy", "parameter_server", "--max_steps", "2000", "--save_checkpoints_steps", "100", "--seed", "1"]
    flags += ALL_STEPS
    with task_cluster(tmp_path, flags) as cluster:
        cluster.start("ps", "worker", "chief", "evaluator")

        def saved_since(step: int) -> bool:
            return steps_saved(model) > step

        for role in ("worker", "evaluator", "chief", "ps"):
            until(functools.partial(saved_since, steps_saved(model)), "a further checkpoint")
            cluster.kill(role)
            cluster.start(role)
        ended = {role: cluster.wait(role) for role in ("chief", "worker", "evaluator")}
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("*.log")))
    assert ended == {"chief": 0, "worker": 0, "evaluator": 0}, logs
    assert json.loads((model / "evaluations.json").read_text())[-1]["global_step"] >= 2000
    assert [path.name for path in sorted((model / "export").iterdir())] == ["best", "final"]
