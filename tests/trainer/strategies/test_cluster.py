"""Clusters: what TF_CONFIG must name, when a worker begins, tasks that are killed, and steps taken together."""

from __future__ import annotations

import collections
import functools
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from schemas.errors import MillraceError, UsageError
from tests.support.processes import until
from tests.support.task_cluster import free_ports, task_cluster
from trainer.data.epochs import part_rows
from trainer.estimator.all_reduce import TaskLost
from trainer.spec.options import TrainingPlan
from trainer.strategies.cluster import Cluster, Task, check_cluster
from trainer.strategies.multi_worker import addresses, explained, initialized, unreachable
from trainer.strategies.run_config import replicas_of, run_config

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
        ("multi_worker", environment(CHIEF_AND_WORKER)),
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
    ("strategy", "variables", "told"),
    [
        ("parameter_server", {}, "--strategy parameter_server: TF_CONFIG names no cluster; expected"),
        ("parameter_server", environment({"chief": ["a:1"]}), "TF_CONFIG names chief; expected a cluster of chief, ps"),
        ("mirrored", environment(WHOLE), "--strategy mirrored: replicas on one machine, but TF_CONFIG names a cluster"),
        (
            "multi_worker",
            environment(WHOLE),
            "TF_CONFIG names chief, ps, worker; expected a cluster of chief and worker,",
        ),
        ("multi_worker", {}, "--strategy multi_worker: TF_CONFIG names no cluster; expected a cluster of chief and"),
        (
            "none",
            environment(CHIEF_AND_WORKER),
            "but no parameter servers that hold the variables; add ps, or train with",
        ),
        ("none", environment({"chief": ["a:1"]}), "TF_CONFIG: names a chief alone, .* Unset it to train,"),
        ("none", environment({"ps": ["a:1"]}), "TF_CONFIG: names ps, but no chief, which saves the checkpoints"),
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
def test_refuses(strategy, variables, told):
    with pytest.raises(UsageError, match=told):
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
    with task_cluster(tmp_path, flags) as cluster:
        cluster.start("ps", "worker", "chief", "evaluator")

        def saved_since(seen: int) -> bool:
            return steps_saved(model) > seen

        for role in ("worker", "evaluator", "chief", "ps"):
            until(functools.partial(saved_since, steps_saved(model)), "a further checkpoint")
            cluster.kill(role)
            cluster.start(role)
        ended = {role: cluster.wait(role) for role in ("chief", "worker", "evaluator")}
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("*.log")))
    assert ended == {"chief": 0, "worker": 0, "evaluator": 0}, logs
    assert json.loads((model / "evaluations.json").read_text())[-1]["global_step"] >= 2000
    assert [path.name for path in sorted((model / "export").iterdir())] == ["best", "final"]


TASKS = ("chief", "worker")
BATCH, SAVED = 32, 7
TOGETHER = ["--strategy", "multi_worker"]


def logs(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in folder.glob("*.log")}


def read(folder: Path, replica: int) -> dict[int, list[int]]:
    """The ids that a replica has read, by step; of a step that was repeated, those of its second time."""
    lines = map(json.loads, (folder / "steps.jsonl").read_text().splitlines())
    return {line["step"]: line["ids"] for line in lines if line["replica"] == replica}


@pytest.mark.slow
def test_after_a_task_is_killed_all_end_and_go_on_with_what_they_have_not_read(numbers, tmp_path):
    model, steps, all_tasks = tmp_path / "model", numbers.rows("train") // BATCH + 3, (*TASKS, "evaluator")
    flags = ["--data_dir", numbers.path, "--model_dir", model, *TOGETHER, "--seed", "1", "--deterministic"]
    flags += ["--model", "tests.support.reading_models:model_fn", "--hparams", f"folder={tmp_path}"]
    flags += ["--batch_size", BATCH, "--max_steps", steps, "--save_checkpoints_steps", SAVED, "--no_report"]
    (tmp_path / "kill_at").write_text(f"{SAVED + 2} {int(signal.SIGKILL)}")
    with task_cluster(tmp_path, flags, roles=TASKS) as cluster:
        cluster.start(*TASKS)
        assert cluster.wait("worker") == -signal.SIGKILL, logs(tmp_path)
        assert cluster.wait("chief") == 1, logs(tmp_path)
        assert "error: --strategy multi_worker: chief-0: " in logs(tmp_path)["chief"]
        assert "start all of them again, and they resume from the last checkpoint" in logs(tmp_path)["chief"]
        cluster.start(*all_tasks)
        assert [cluster.wait(role) for role in all_tasks] == [0, 0, 0], logs(tmp_path)
    assert f"input: goes on in epoch 1 after {SAVED * BATCH // 2} of " in logs(tmp_path)["chief"]
    assert "Traceback" not in "".join(logs(tmp_path).values())
    for number in range(len(TASKS)):
        rows = part_rows(numbers, "train", num_workers=len(TASKS), worker=number)
        by_step = read(tmp_path, number)
        assert sorted(by_step) == list(range(steps))
        ids = [i for step in range(steps) for i in by_step[step]]
        assert len(ids) > rows
        assert set(collections.Counter(ids[:rows]).values()) == {1}
    assert json.loads((model / "evaluations.json").read_text())[-1]["global_step"] == steps
    assert [path.name for path in sorted((model / "export").iterdir())] == ["best", "final"]


@pytest.mark.slow
def test_all_stop_early_at_the_same_step(late, tmp_path):
    model = tmp_path / "model"
    flags: list[Any] = ["--data_dir", late.path, "--model_dir", model, "--max_steps", "100000", *TOGETHER]
    flags += ["--model", "tests.support.own_models:slow_steps", "--early_stopping_steps", "20"]
    evaluations = [{"global_step": step, "auc": 0.5, "loss": 1.0} for step in (0, 20)]
    with task_cluster(tmp_path, [*flags, "--save_checkpoints_steps", "20"], roles=TASKS) as cluster:
        cluster.start(*TASKS)
        until((model / "model.ckpt-0.index").exists, "the first checkpoint")
        (model / "evaluations.json").write_text(json.dumps(evaluations))
        assert [cluster.wait(role) for role in TASKS] == [0, 0], logs(tmp_path)
    ended = json.loads((model / "training_ended.json").read_text())
    assert ended["reason"] == "no better evaluation for 20 steps"


class TestOneTask:
    """Of three, none of which has started."""

    @pytest.fixture
    def config(self, monkeypatch, tmp_path) -> Any:
        hosts = [f"127.0.0.1:{port}" for port in free_ports(3)]
        cluster = {"chief": hosts[:1], "worker": hosts[1:]}
        task = {"type": "worker", "index": 1}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
        sizes: dict[str, Any] = {
            "batch_size": 1,
            "max_steps": 1,
            "save_checkpoints_steps": 1,
            "early_stopping_steps": 0,
        }
        plan = TrainingPlan(data_dir="", model_dir="", model="dnn", strategy="multi_worker", **sizes)
        return run_config(plan, str(tmp_path))

    def test_a_replica_is_in_each(self, config):
        assert replicas_of(config) == 3

    def test_no_step_may_take_forever(self, config):
        assert config.session_config.operation_timeout_in_ms == 600_000

    def test_knows_who_listens(self, config):
        others = addresses(config)
        assert list(others) == ["chief-0", "worker-0"]
        assert list(addresses(config, chief_only=True)) == ["chief-0"]
        assert unreachable(others) == others
        host, port = others["chief-0"].split(":")
        with socket.create_server((host, int(port))):
            assert list(unreachable(others)) == ["worker-0"]

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (TaskLost(), "worker-1: chief-0 (127.0.0.1:"),
            (tf.errors.DeadlineExceededError(None, None, "late"), "worker-1: for 600 s there was no step; chief-0 ("),
            (tf.errors.InternalError(None, None, "Collective ops is aborted by: x"), "worker-1: chief-0 (127.0.0.1:"),
        ],
    )
    def test_a_lost_task_is_named(self, config, error, told):
        with pytest.raises(MillraceError) as raised, explained(config):
            raise error
        assert f"--strategy multi_worker: {told}" in str(raised.value)
        assert "does not answer" in str(raised.value)

    def test_other_errors_stay(self, config):
        with pytest.raises(tf.errors.InternalError, match="own"), explained(config):
            raise tf.errors.InternalError(None, None, "own")
