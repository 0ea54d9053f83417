"""The roles of a training's processes, and this process's own, as Vertex AI and TensorFlow tell them.

Vertex AI sets CLUSTER_SPEC on every replica, whose roles are the places of worker pools, evaluators among them.
Without it, TF_CONFIG says the same; unlike TensorFlow's own, it may name the evaluators, which TensorFlow does not
take for part of the cluster. Importing this imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Set
from typing import Any

from schemas.errors import UsageError
from schemas.storage.json_files import parse_json

VARIABLE = "TF_CONFIG"
ROLES = ("chief", "worker", "ps", "evaluator")  # in the order of Vertex AI's worker pools
CHIEF, WORKER, PS, EVALUATOR = ROLES
_OF_POOLS = {f"workerpool{place}": role for place, role in enumerate(ROLES)}


@dataclasses.dataclass(frozen=True)
class Task:
    """One process: its role and its index among those of that role."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a training.

    Attributes:
      addresses: HOST:PORT of the processes of each role, by index.
      task: this process's own.
    """

    addresses: Mapping[str, tuple[str, ...]]
    task: Task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All processes."""
        return tuple(Task(role, i) for role in ROLES for i in range(len(self.addresses.get(role, ()))))

    @property
    def jobs(self) -> list[str]:
        """The roles in TensorFlow's cluster, without the evaluator; none for a process that trains alone."""
        return [role for role, hosts in self.addresses.items() if hosts and role != EVALUATOR and len(self.tasks) > 1]

    def tf_config(self) -> str | None:
        """TF_CONFIG as TensorFlow has it; None for a process that trains, evaluates and exports alone.

        Beside a chief alone it says how many evaluators there are, which TensorFlow does not read.
        """
        if len(self.tasks) == 1:
            return None
        evaluators = {"evaluators": len(self.addresses.get(EVALUATOR, ()))} if self.jobs == [CHIEF] else {}
        return self._named(self.jobs, **evaluators)

    def named(self) -> str:
        """TF_CONFIG with the evaluators, which is what `read_cluster` reads."""
        return self._named([role for role, hosts in self.addresses.items() if hosts])

    def _named(self, roles: Iterable[str], **more: int) -> str:
        cluster = {role: list(self.addresses[role]) for role in roles}
        return json.dumps({"cluster": cluster, "task": {"type": self.task.role, "index": self.task.index}, **more})


def read_cluster(environ: Mapping[str, str]) -> Cluster | None:
    """Reads CLUSTER_SPEC, or else TF_CONFIG.

    Returns:
      The cluster; None where neither variable names one.

    Raises:
      UsageError: the variable is not what Vertex AI or TensorFlow documents.
    """
    name = "CLUSTER_SPEC" if environ.get("CLUSTER_SPEC") else VARIABLE
    text = environ.get(name, "")
    if not text:
        return None
    try:
        return _cluster(parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{name}: names no cluster ({type(error).__name__}: {error}); expected a JSON object with `cluster`, the "
            f"addresses by role, and `task`, this process's type and index; found {text[:200]}"
        ) from error


def _cluster(given: Mapping[str, Any]) -> Cluster | None:
    if not given.get("cluster"):
        return None
    addresses = {_OF_POOLS.get(pool, pool): tuple(hosts) for pool, hosts in given["cluster"].items()}
    role = given["task"]["type"]
    task = Task(_OF_POOLS.get(role, role), int(given["task"].get("index", 0)))
    if unknown := {*addresses, task.role} - set(ROLES):
        raise ValueError(f"no role of a training: {', '.join(sorted(unknown))}")
    if task.index >= len(addresses.get(task.role, ())) and task.role != EVALUATOR:
        raise ValueError(f"{task} is not in the cluster")
    return Cluster(addresses, task)


def check_cluster(strategy: str, environment: Mapping[str, str] = os.environ) -> None:
    """Compares a strategy with the cluster in the environment.

    Raises:
      UsageError: they do not fit; or TF_CONFIG cannot be read, names a role that there is not, or a chief whose model
        nobody would evaluate and export.
    """
    config = _read(environment)
    jobs, role = set(config.get("cluster") or {}), (config.get("task") or {}).get("type")
    if (role is None) if jobs else role not in (None, WORKER):  # TensorFlow takes a worker without a cluster
        named, lacking = ("a task", "no cluster") if role else ("a cluster", "no task, this process's type and index")
        raise UsageError(f"{VARIABLE}: names {named}, but {lacking}; to train in one process, unset {VARIABLE}")
    if unknown := {*jobs, *([role] if jobs else [])} - set(ROLES):
        raise UsageError(
            f"{VARIABLE}: names {', '.join(sorted(map(str, unknown)))}; expected the roles {', '.join(ROLES)}. What "
            f"TensorFlow 1 called master is chief; to train in one process, unset {VARIABLE}"
        )
    check_jobs(strategy, jobs)
    if jobs and CHIEF not in jobs:
        raise UsageError(
            f"{VARIABLE}: names {', '.join(sorted(jobs))}, but no chief, which saves the checkpoints; add it"
        )
    if jobs == {role} == {CHIEF} and not config.get("evaluators"):
        raise UsageError(
            f"{VARIABLE}: names a chief alone, which leaves evaluations and exports to an evaluator. Unset it to "
            'train, evaluate and export in this process; or add `"evaluators": 1` to it, if you start an evaluator'
        )


def check_jobs(strategy: str, jobs: Set[str]) -> None:
    """Compares a strategy with the roles in TensorFlow's cluster.

    Raises:
      UsageError: they do not fit.
    """
    found = f"names {', '.join(sorted(jobs))}" if jobs else "names no cluster"
    if strategy == "parameter_server" and not {"chief", "ps"} <= jobs:
        raise UsageError(
            f"--strategy parameter_server: {VARIABLE} {found}; expected a cluster of chief, ps and any number of "
            "workers (docs/strategies.md)"
        )
    if strategy == "mirrored" and jobs:
        raise UsageError(
            f"--strategy mirrored: replicas on one machine, but {VARIABLE} names a cluster; unset it, or train with "
            "--strategy parameter_server"
        )
    if strategy == "none" and {"chief", "worker"} <= jobs and "ps" not in jobs:
        raise UsageError(f"{VARIABLE} {found}, but no parameter servers that hold the variables; add ps")


def _read(environment: Mapping[str, str]) -> dict[str, Any]:
    """TF_CONFIG; empty without one."""
    text = environment.get(VARIABLE, "")
    try:
        found: Any = parse_json(text) if text else {}
        set(found.get("cluster") or {}), (found.get("task") or {}).get("type")
        return dict(found)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f'{VARIABLE}: expected a JSON object with "cluster" and "task", found {text[:80]!r}') from None
