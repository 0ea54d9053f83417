"""Reads the roles of a training's processes, and this process's own, from what Vertex AI and TensorFlow set.

Vertex AI sets CLUSTER_SPEC on every replica, whose roles are the places of worker pools, evaluators among them.
Without it, TF_CONFIG says the same; unlike TensorFlow's own, it may name the evaluators, which TensorFlow does not
take for part of the cluster. Importing this imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterable, Mapping, Set
from typing import Any

from schemas import interrupts
from schemas.errors import UsageError
from schemas.storage.json_files import parse_json

VARIABLE = "TF_CONFIG"
ROLES = ("chief", "worker", "ps", "evaluator")  # in the order of Vertex AI's worker pools
CHIEF, WORKER, PS, EVALUATOR = ROLES
_OF_POOLS = {f"workerpool{place}": role for place, role in enumerate(ROLES)}


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a training: its role, and its index among the processes of that role."""

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
        """Returns TF_CONFIG as TensorFlow has it; None for a process that trains, evaluates and exports alone.

        Beside a chief alone it says how many evaluators there are, which TensorFlow does not read.
        """
        if len(self.tasks) == 1:
            return None
        evaluators = {"evaluators": len(self.addresses.get(EVALUATOR, ()))} if self.jobs == [CHIEF] else {}
        return self._named(self.jobs, **evaluators)

    def named(self) -> str:
        """Returns TF_CONFIG with the evaluators, as `read_cluster` reads it."""
        return self._named([role for role, hosts in self.addresses.items() if hosts])

    def _named(self, roles: Iterable[str], **more: int) -> str:
        cluster = {role: list(self.addresses[role]) for role in roles}
        return json.dumps({"cluster": cluster, "task": {"type": self.task.role, "index": self.task.index}, **more})


def read_cluster(environ: Mapping[str, str]) -> Cluster | None:
    """Reads CLUSTER_SPEC, or else TF_CONFIG; see `parse_cluster`."""
    name = "CLUSTER_SPEC" if environ.get("CLUSTER_SPEC") else VARIABLE
    return parse_cluster(environ.get(name, ""), name)


def parse_cluster(text: str, name: str = VARIABLE) -> Cluster | None:
    """Returns the cluster that a variable names.

    Args:
      text: the variable's value. Evaluators without an address are counted by `evaluators`, beside `cluster`.
      name: the variable.

    Returns:
      The cluster; None where the variable names none.

    Raises:
      UsageError: the variable is not what Vertex AI or TensorFlow documents.
    """
    try:
        config: Any = parse_json(text) if text else {}
        addresses = {_OF_POOLS.get(pool, pool): tuple(hosts) for pool, hosts in (config.get("cluster") or {}).items()}
        task: dict[str, Any] = config.get("task") or {}
        kind, index = task.get("type"), int(task.get("index", 0))
        role = None if kind is None else _OF_POOLS.get(kind, kind)
        evaluators = max(int(config.get("evaluators", 0)), index + 1 if role == EVALUATOR else 0)
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f'{name}: expected a JSON object with "cluster", the addresses by role, and "task", the type and index of '
            f"this process ({error}); found {text[:200]}"
        ) from error
    if not addresses and role in (None, WORKER):  # TensorFlow takes a worker without a cluster
        return None
    if not addresses or role is None:
        present, lacking = ("a task", "no cluster") if role else ("a cluster", "no task, this process's type and index")
        raise UsageError(f"{name}: names {present}, but {lacking}; to train in one process, unset {name}")
    if unknown := {*addresses, role} - set(ROLES):
        raise UsageError(
            f"{name}: names {', '.join(sorted(map(str, unknown)))}; expected the roles {', '.join(ROLES)}. What "
            f"TensorFlow 1 called master is chief; to train in one process, unset {name}"
        )
    if evaluators:
        addresses.setdefault(EVALUATOR, ("",) * evaluators)
    own = Task(role, index)
    if index >= len(addresses.get(role, ())):
        raise UsageError(f"{name}: its task is {own}, which is not in its cluster; correct one of them")
    return Cluster(addresses, own)


def check_cluster(strategy: str, environment: Mapping[str, str] = os.environ) -> None:
    """Compares a strategy with the cluster in TF_CONFIG.

    Raises:
      UsageError: they do not fit; or TF_CONFIG cannot be read, or names a chief whose model nobody would evaluate.
    """
    cluster = parse_cluster(environment.get(VARIABLE, ""))
    jobs = set() if cluster is None else {role for role in cluster.addresses if role != EVALUATOR}
    check_jobs(strategy, jobs)
    if jobs and CHIEF not in jobs:
        raise UsageError(
            f"{VARIABLE}: names {', '.join(sorted(jobs))}, but no chief, which saves the checkpoints; add it"
        )
    if cluster is not None and len(cluster.tasks) == 1:
        raise UsageError(
            f"{VARIABLE}: names a chief alone, which leaves evaluations and exports to an evaluator. Unset it to "
            'train, evaluate and export in this process; or add `"evaluators": 1` to it, if you start an evaluator'
        )


def check_jobs(strategy: str, jobs: Set[str]) -> None:
    """Compares a strategy with the roles in TensorFlow's cluster.

    Raises:
      UsageError: they do not fit.
    """
    present = f"names {', '.join(sorted(jobs))}" if jobs else "names no cluster"
    if strategy == "parameter_server" and not {"chief", "ps"} <= jobs:
        raise UsageError(
            f"--strategy parameter_server: {VARIABLE} {present}; expected a cluster of chief, ps and any number of "
            "workers (docs/strategies.md)"
        )
    if strategy == "mirrored" and jobs:
        raise UsageError(
            f"--strategy mirrored: replicas on one machine, but {VARIABLE} names a cluster; unset it, or train with "
            "--strategy parameter_server"
        )
    if strategy == "none" and {"chief", "worker"} <= jobs and "ps" not in jobs:
        raise UsageError(f"{VARIABLE} {present}, but no parameter servers that hold the variables; add ps")


EVERY_SECS = 0.5
ANSWER_MS = 5000  # of a parameter server that may not have started yet


def wait_for_chief(config: Any) -> None:
    """Returns when the chief has initialized the variables on the parameter servers.

    Estimator lets a worker wait some seconds for each worker before it. One that finds the variables uninitialized all
    the same looks again only after 30 s, in which the others may have done all the steps.

    Args:
      config: the `RunConfig` of a worker in a cluster with parameter servers.
    """
    addresses = config.cluster_spec.as_dict().get("ps", [])
    while addresses and not initialized(addresses[0]):
        interrupts.check()
        time.sleep(EVERY_SECS)


def initialized(address: str) -> bool:
    """Returns whether the first parameter server, which has the global step, has a value for it."""
    import tensorflow as tf

    settings = tf.compat.v1.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=ANSWER_MS)
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        step = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=tf.compat.v1.GraphKeys.GLOBAL_STEP)
        is_initialized = tf.raw_ops.VarIsInitializedOp(resource=step)
        try:
            with tf.compat.v1.Session(f"grpc://{address}", config=settings) as session:
                return bool(session.run(is_initialized))
        except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
            return False
