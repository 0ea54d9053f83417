"""A parameter-server cluster by TF_CONFIG: chief, worker, parameter server, evaluator, each a process on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.estimator_problem import MAX_STEPS, ROWS, scalars
from tests.support.task_cluster import task_cluster

pytestmark = pytest.mark.slow

ENDING = ("chief", "worker", "evaluator")  # the parameter server serves until it is killed


def _logs(folder: Path) -> str:
    return "\n".join(f"==== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(folder.glob("*.log")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a cluster has run to its end: `model` is its model directory, beside it are the trainers' reports."""
    folder = tmp_path_factory.mktemp("cluster")
    arguments = [folder / "model", folder]
    with task_cluster(folder, arguments, module="tests.support.estimator_problem") as cluster:
        cluster.start("ps", *ENDING)
        assert [cluster.wait(role) for role in ENDING] == [0, 0, 0], _logs(folder)
    return folder


@pytest.fixture(scope="module")
def reports(folder: Path) -> dict[str, Any]:
    return {role: json.loads((folder / f"{role}-0.json").read_text()) for role in ("chief", "worker")}


def test_chief_and_worker_both_train(reports: dict[str, Any]) -> None:
    steps = [reports[role]["steps"] for role in ("chief", "worker")]

    assert min(steps) > 0
    assert sum(steps) >= MAX_STEPS


def test_variables_are_on_the_parameter_server(reports: dict[str, Any]) -> None:
    assert [reports[role]["variables_on"] for role in ("chief", "worker")] == [["/job:ps/task:0"]] * 2


def test_each_trainer_reads_its_own_rows(reports: dict[str, Any]) -> None:
    assert set(reports["chief"]["rows"]) <= set(range(0, ROWS, 2))
    assert set(reports["worker"]["rows"]) <= set(range(1, ROWS, 2))


def test_the_evaluator_evaluates_the_last_checkpoint_and_exports_it(folder: Path) -> None:
    accuracy = scalars(folder / "model" / "eval", "accuracy")

    assert max(accuracy) >= MAX_STEPS
    assert accuracy[max(accuracy)] > 0.9
    assert len(list((folder / "model" / "export" / "final").iterdir())) == 1
