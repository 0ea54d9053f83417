"""The roles of a training's processes, and this process's own, as Vertex AI and TensorFlow tell them.

Vertex AI sets CLUSTER_SPEC on every replica, whose roles are the places of worker pools, evaluators among them.
Without it, TF_CONFIG says the same; unlike TensorFlow's own, it may name the evaluators, which TensorFlow does not
take for part of the cluster.

How the processes of a training tell each other that they have ended: a small file each, in the model directory.

A service ends all replicas with the chief, and so would end the evaluator before its last export. Parameter servers
end by themselves never. Both wait for such files, which need no connection between the processes.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Mapping
from typing import Any

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.storage.json_files import parse_json

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

    def tf_config(self) -> str | None:
        """TF_CONFIG as TensorFlow has it; None for a process that trains, evaluates and exports alone."""
        if len(self.tasks) == 1:
            return None
        cluster = {role: list(hosts) for role, hosts in self.addresses.items() if hosts and role != EVALUATOR}
        return json.dumps({"cluster": cluster, "task": {"type": self.task.role, "index": self.task.index}})

    def named(self) -> str:
        """TF_CONFIG with the evaluators, which is what `read_cluster` reads."""
        cluster = {role: list(hosts) for role, hosts in self.addresses.items() if hosts}
        return json.dumps({"cluster": cluster, "task": {"type": self.task.role, "index": self.task.index}})


def read_cluster(environ: Mapping[str, str]) -> Cluster | None:
    """Reads CLUSTER_SPEC, or else TF_CONFIG.

    Returns:
      The cluster; None where neither variable names one.

    Raises:
      UsageError: the variable is not what Vertex AI or TensorFlow documents.
    """
    name = "CLUSTER_SPEC" if environ.get("CLUSTER_SPEC") else "TF_CONFIG"
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


FOLDER = "replicas"
POLL_SECONDS = 5.0
RESTART_SECONDS = 900.0  # a task that has failed, and that nobody starts again in this time, has failed for good


class Ends:
    """The files of one job.

    Args:
      model_dir: the model directory, which all processes reach.
      job: the job's name, which no other training into the same directory has.
    """

    def __init__(self, model_dir: str, job: str) -> None:
        self._folder = storage.join(model_dir, FOLDER, job)
        self._failed: dict[Task, float] = {}  # since when

    def clear(self, task: Task) -> None:
        """Removes what an earlier attempt at this task has left."""
        if storage.exists(self._path(task)):
            storage.delete(self._path(task))

    def write(self, task: Task, exit_code: int) -> None:
        """Notes that a task has ended."""
        storage.write_bytes(self._path(task), json.dumps({"exit_code": exit_code}).encode() + b"\n")

    def done(self, tasks: Collection[Task]) -> bool:
        """Whether all of these tasks have ended well. False if the files cannot be read: it is asked again soon.

        Raises:
          MillraceError: one of them has failed, and was not started again.
        """
        try:
            written = set(storage.listdir(self._folder))
            codes = {task: self._read(task) for task in tasks if f"{task}.json" in written}
        except MillraceError:  # also if a task is started again just now, and has removed its file
            return False
        now = time.monotonic()
        self._failed = {task: self._failed.get(task, now) for task, code in codes.items() if code}
        for task, since in self._failed.items():
            if now - since >= RESTART_SECONDS:
                raise MillraceError(
                    f"{task}: ended with exit code {codes[task]}, and was not started again for {RESTART_SECONDS:.0f} "
                    "s, so this process ends, too; its own log says why it failed"
                )
        return all(codes.get(task) == 0 for task in tasks)

    def _read(self, task: Task) -> int:
        return int(parse_json(storage.read_bytes(self._path(task)))["exit_code"])

    def _path(self, task: Task) -> str:
        return storage.join(self._folder, f"{task}.json")
