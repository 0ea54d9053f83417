"""Clusters whose tasks run a command of the trainer, each in a process that a test starts, kills and starts again.

    python -m tests.support.task_cluster FOLDER

reads orders, a line of JSON each: `["start", ROLE, TF_CONFIG, MODULE, ARGUMENT ...]`, `["kill", ROLE]` and
`["wait", ROLE]`, and answers each with a line, which is the exit code where the task has ended. The tasks are forked
from this process, which has imported TensorFlow and run nothing. What they log is added to FOLDER/ROLE.log, and what
they print to FOLDER/ROLE.out.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.forking import fork
from tests.support.processes import free_port
from tests.support.replicas import ROOT, spare_the_collector

ROLES = ("chief", "ps")  # of commands that run one after the other


class Cluster:
    """Tasks of one command.

    Args:
      process: which forks them.
      command: the module and its arguments.
      roles: those in the cluster; the evaluator is in none.
    """

    def __init__(self, process: Any, command: Sequence[object], roles: Sequence[str]) -> None:
        self._process, self._command = process, list(map(str, command))
        ports = free_ports(len(roles))
        self._addresses = {role: [f"127.0.0.1:{port}"] for role, port in zip(roles, ports, strict=True)}

    def start(self, *roles: str) -> None:
        for role in roles:
            tf_config = {"cluster": self._addresses, "task": {"type": role, "index": 0}}
            self._order("start", role, json.dumps(tf_config), *self._command)

    def kill(self, role: str) -> None:
        self._order("kill", role)

    def wait(self, role: str) -> int:
        return int(self._order("wait", role))

    def _order(self, *order: str) -> str:
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        return str(self._process.stdout.readline())


@contextlib.contextmanager
def _forking(folder: Path) -> Iterator[Any]:
    """The process that forks; what still runs at the end is killed."""
    command = [sys.executable, "-m", __name__, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def task_cluster(
    folder: Path,
    arguments: Sequence[object],
    *,
    roles: Sequence[str] = ("ps", "chief", "worker"),
) -> Iterator[Cluster]:
    """A cluster of which nothing has started."""
    with _forking(folder) as process:
        yield Cluster(process, ["trainer.task", *arguments], roles)


def run_in_lockstep(folder: Path, commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Runs commands one after the other, each by a chief and a parameter server.

    Returns:
      Of each command the exit `code` and the `out` of the chief.
    """
    reports = []
    printed = folder / "chief.out"
    with _forking(folder) as process:
        for command in commands:
            cluster = Cluster(process, command, ROLES)
            printed.unlink(missing_ok=True)
            cluster.start(*ROLES)
            code = cluster.wait("chief")
            cluster.kill("ps")  # which would wait for ever
            reports.append({"code": code, "out": printed.read_text()})
    return reports


def free_ports(count: int) -> list[int]:
    """Free ports, all different."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


def perform(tf_config: str, module: str, arguments: Sequence[str]) -> int:
    """Runs a command as a task of the cluster."""
    os.environ["TF_CONFIG"] = tf_config
    return int(importlib.import_module(module).main(arguments))


def main(folder: Path) -> None:
    import trainer.loop.train  # noqa: F401 - what all tasks import

    spare_the_collector()
    children: dict[str, int] = {}
    for line in sys.stdin:
        order, role, *rest = json.loads(line)
        answer = ""
        if order == "start":
            out, err = (os.open(folder / f"{role}.{s}", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for s in ("out", "log"))
            children[role] = fork(functools.partial(perform, rest[0], rest[1], rest[2:]), out=out, err=err)
            os.close(out)
            os.close(err)
        else:
            child = children.pop(role)
            if order == "kill":
                os.kill(child, signal.SIGKILL)
            answer = str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(answer, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
