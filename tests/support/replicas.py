"""Commands of the trainer in a process that has two logical CPUs, which is how replicas are tried without GPUs.

    python -m tests.support.replicas < COMMANDS

COMMANDS is a JSON list: of each command the module and its arguments. It runs them one after the other, and prints a
line of JSON: of each the exit code and what it printed. A process of its own, since TensorFlow's devices are settled
when it first runs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_with_replicas(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Of each command its exit code, `out` and `err`."""
    run = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=ROOT,
        input=json.dumps([list(map(str, command)) for command in commands]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    return list(json.loads(run.stdout.splitlines()[-1]))


def spare_the_collector() -> None:
    """As `tests/conftest.py` has it: graphs are many objects and little garbage."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


def main() -> None:
    spare_the_collector()
    reports = []
    for module, *argv in json.load(sys.stdin):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = importlib.import_module(module).main(argv)
            except Exception:  # the other commands' reports are not lost with it
                traceback.print_exc()
                code = 70
        reports.append({"code": code, "out": out.getvalue(), "err": err.getvalue()})
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
