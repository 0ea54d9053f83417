"""A cluster whose tasks run `trainer.task`, each in a process that a test starts, kills and starts again.

    python -m tests.support.task_cluster ROLES FOLDER ARGUMENT ...

reads orders, a line each: `start ROLE`, `kill ROLE`, `wait ROLE`, which is answered by the exit code. The tasks are
forked from this process, which has imported TensorFlow and run nothing; each writes to FOLDER/ROLE.log. ROLES, joined
by commas, are those in the cluster; the evaluator is in none.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.forking import fork

ROOT = Path(__file__).parents[2]


class Cluster:
    """The orders, as a test gives them."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def start(self, *roles: str) -> None:
        for role in roles:
            self._order(f"start {role}")

    def kill(self, role: str) -> None:
        self._order(f"kill {role}")

    def wait(self, role: str) -> int:
        return int(self._order(f"wait {role}"))

    def _order(self, order: str) -> str:
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return str(self._process.stdout.readline())


@contextlib.contextmanager
def task_cluster(
    folder: Path, arguments: Sequence[str], *, roles: Sequence[str] = ("ps", "chief", "worker")
) -> Iterator[Cluster]:
    """A cluster of which nothing has started; what still runs at the end is killed."""
    command = [sys.executable, "-m", __name__, ",".join(roles), str(folder), *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Cluster(process)
        finally:
            process.kill()


def free_ports(count: int) -> list[int]:
    """Free ports; all are held until all are found, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def perform(role: str, addresses: dict[str, list[str]], arguments: Sequence[str]) -> int:
    """Runs `trainer.task` as a task of the cluster."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": role, "index": 0}})
    from trainer import task

    return task.main(arguments)


def main(roles: Sequence[str], folder: Path, arguments: Sequence[str]) -> None:
    import trainer.loop.train  # noqa: F401 - what all tasks import

    addresses = {role: [f"127.0.0.1:{port}"] for role, port in zip(roles, free_ports(len(roles)), strict=True)}
    children: dict[str, int] = {}
    for line in sys.stdin:
        order, role = line.split()
        answer = ""
        if order == "start":
            log = os.open(folder / f"{role}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            children[role] = fork(functools.partial(perform, role, addresses, arguments), out=log)
        else:
            child = children.pop(role)
            if order == "kill":
                os.kill(child, signal.SIGKILL)
            answer = str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1].split(","), Path(sys.argv[2]), sys.argv[3:])
