"""Reads the roles of a training's processes from the environment variables CLUSTER_SPEC or TF_CONFIG.

Vertex AI sets CLUSTER_SPEC on every replica. There, the position of a worker pool decides its role, and evaluators have
a pool too. Without CLUSTER_SPEC, TF_CONFIG gives the roles. This module also accepts a TF_CONFIG that names the
evaluators, although TensorFlow does not count evaluators as a part of the cluster. Importing this module does not
import TensorFlow.
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
      addresses: by role, the HOST:PORT of each process, in the order of their indices.
      task: the task of this process.
    """

    addresses: Mapping[str, tuple[str, ...]]
    task: Task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of all processes."""
        return tuple(Task(role, i) for role in ROLES for i in range(len(self.addresses.get(role, ()))))

    @property
    def jobs(self) -> list[str]:
        """The roles in TensorFlow's cluster, without the evaluator; empty for a process that trains alone."""
        return [role for role, hosts in self.addresses.items() if hosts and role != EVALUATOR and len(self.tasks) > 1]

    def tf_config(self) -> str | None:
        """Returns TF_CONFIG in TensorFlow's form, without evaluators.

        Returns None for a process that trains, evaluates and exports alone. If the only other processes are evaluators,
        the text also holds their number, which TensorFlow ignores.
        """
        if len(self.tasks) == 1:
            return None
        evaluators = {"evaluators": len(self.addresses.get(EVALUATOR, ()))} if self.jobs == [CHIEF] else {}
        return self._named(self.jobs, **evaluators)

    def named(self) -> str:
        """Returns TF_CONFIG with the addresses of the evaluators, in the form that `read_cluster` reads."""
        return self._named([role for role, hosts in self.addresses.items() if hosts])

    def _named(self, roles: Iterable[str], **more: int) -> str:
        """Returns TF_CONFIG with the addresses of some roles, and with further entries."""
        cluster = {role: list(self.addresses[role]) for role in roles}
        return json.dumps({"cluster": cluster, "task": {"type": self.task.role, "index": self.task.index}, **more})


def read_cluster(environ: Mapping[str, str]) -> Cluster | None:
    """Reads the cluster from CLUSTER_SPEC, or from TF_CONFIG if CLUSTER_SPEC is not set; see `parse_cluster`."""
    name = "CLUSTER_SPEC" if environ.get("CLUSTER_SPEC") else VARIABLE
    return parse_cluster(environ.get(name, ""), name)


def parse_cluster(text: str, name: str = VARIABLE) -> Cluster | None:
    """Parses the value of CLUSTER_SPEC or TF_CONFIG.

    Args:
      text: the variable's value. The entry `evaluators`, next to `cluster`, is the number of evaluators that have no
        address.
      name: the variable's name, for messages.

    Returns:
      The cluster; None if the variable names no cluster.

    Raises:
      UsageError: the value does not have the form that Vertex AI or TensorFlow documents.
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
    if not addresses and role in (None, WORKER):  # TensorFlow accepts a worker without a cluster
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
    """Checks that a strategy fits the cluster in TF_CONFIG.

    Raises:
      UsageError: the strategy does not fit the cluster, TF_CONFIG cannot be parsed, the cluster has no chief, or it has
        a chief only, so that nobody would evaluate the model.
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
    """Checks that a strategy fits the roles in TensorFlow's cluster.

    Raises:
      UsageError: the strategy does not fit.
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
ANSWER_MS = 5000  # how long to wait for a parameter server that may not have started yet


def wait_for_chief(config: Any) -> None:
    """Waits until the chief has initialized the variables on the parameter servers.

    Estimator starts each worker a few seconds after the worker before it. A worker that still finds the variables
    uninitialized looks again only 30 s later. By then the others may have made all the steps.

    Args:
      config: the `RunConfig` of a worker in a cluster with parameter servers.
    """
    addresses = config.cluster_spec.as_dict().get("ps", [])
    while addresses and not initialized(addresses[0]):
        interrupts.check()
        time.sleep(EVERY_SECS)


def initialized(address: str) -> bool:
    """Returns whether the global step is initialized on the first parameter server.

    Args:
      address: HOST:PORT of the first parameter server, which holds the global step.
    """
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
