"""Commands of the trainer as two tasks of a cluster, each in a process of its own: chief and worker, or chief and ps.

    python -m tests.support.lockstep FOLDER < COMMANDS

COMMANDS is a JSON list: of each command the module and its arguments. For one after the other it forks a chief and a
worker, or with `parameter_server` among the arguments a chief and a parameter server, which it ends after the chief. It
forks them from a process that has imported TensorFlow and run nothing, and prints a line of JSON: of each command the
exit codes, and what the chief has printed. The logs lie in FOLDER.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.forking import fork
from tests.support.replicas import ROOT, add_small_variant, spare_the_collector
from tests.support.task_cluster import free_ports

TOGETHER, SERVED = ("chief", "worker"), ("chief", "ps")


def run_in_lockstep(folder: Path, commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Of each command its exit `codes` by role, and the `out` of the chief."""
    run = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=ROOT,
        input=json.dumps([list(map(str, command)) for command in commands]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(run.stdout.splitlines()[-1]))


def perform(role: str, tf_config: dict[str, Any], module: str, argv: Sequence[str]) -> int:
    """Runs a command as a task of the cluster."""
    os.environ["TF_CONFIG"] = json.dumps({**tf_config, "task": {"type": role, "index": 0}})
    return int(importlib.import_module(module).main(argv))


def main(folder: Path) -> None:
    import tests.support.replica_steps  # noqa: F401 - what all tasks import

    add_small_variant()
    spare_the_collector()
    reports = []
    for number, (module, *argv) in enumerate(json.load(sys.stdin)):
        roles = SERVED if "parameter_server" in argv else TOGETHER
        addresses = {role: [f"127.0.0.1:{port}"] for role, port in zip(roles, free_ports(2), strict=True)}
        log = folder / str(number)
        tasks = {}
        for role in roles:
            out, err = (os.open(f"{log}.{role}.{suffix}", os.O_WRONLY | os.O_CREAT) for suffix in ("out", "err"))
            run = functools.partial(perform, role, {"cluster": addresses}, module, argv)
            tasks[fork(run, out=out, err=err)] = role
        codes: dict[str, int] = {}
        while tasks:
            child, status = os.waitpid(-1, 0)
            codes[tasks.pop(child)] = os.waitstatus_to_exitcode(status)
            if roles == SERVED or any(codes.values()):  # the other would wait for ever
                for left in tasks:
                    os.kill(left, signal.SIGTERM)
        reports.append({"codes": codes, "out": Path(f"{log}.chief.out").read_text()})
    print(json.dumps(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
