"""`millrace submit local`: the processes of a training on this machine, and their output line by line."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from millrace.submit.command import SubmitOptions
from millrace.submit.training import read_training
from schemas import command, interrupts
from schemas.errors import MillraceError
from trainer.strategies.cluster import CHIEF, PS, Cluster, Task

GRACE_SECONDS = 30.0  # until processes that were asked to end are killed
_KEPT_LINES = 20  # of a process's output, to say why it failed


def submit(options: SubmitOptions, training_argv: Sequence[str] | None, prog: str) -> command.Report:
    """Runs the processes to their end.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong.
      MillraceError: a process failed; the others were ended.
      Interrupted: Ctrl-C was pressed; all were ended.
    """
    training = read_training(training_argv, prog, options.sizes)
    job = options.name
    codes = run(options.sizes, training.args, {**os.environ, **options.variables}, quiet=options.quiet)
    model_dir = training.options.model_dir
    data = {"job": job, "model_dir": model_dir, "exit_codes": {str(task): code for task, code in codes.items()}}
    return command.Report(f"done       {job}\nmodel      {model_dir}", data)


def run(
    sizes: Mapping[str, int], args: Sequence[str], environment: Mapping[str, str], *, quiet: bool
) -> dict[Task, int]:
    """Starts a process for each task, and waits until all have ended.

    Args:
      sizes: the number of tasks by role.
      args: the training's arguments.
      environment: the variables of all processes.
      quiet: prints nothing of what they print.

    Returns:
      The exit codes by task, all of them 0.

    Raises:
      MillraceError: one has failed.
    """
    addresses = _addresses(sizes)
    tasks = [Task(role, index) for role, count in sizes.items() for index in range(count)]
    running: dict[Task, _Process] = {}
    try:
        for task in sorted(tasks, key=lambda task: task.role != PS):
            own = {name: value for name, value in environment.items() if name not in ("TF_CONFIG", "CLUSTER_SPEC")}
            own["TF_CONFIG"] = Cluster(addresses, task).named()
            running[task] = _Process(task, args, own, prefixed=len(tasks) > 1, quiet=quiet)
        return _wait(running)
    except KeyboardInterrupt:
        raise interrupts.Interrupted("interrupted; run the command again to resume from the last checkpoint") from None
    finally:
        _end(running)


class _Process:
    """A process in a session of its own, so that Ctrl-C reaches it by way of this one alone."""

    def __init__(
        self, task: Task, args: Sequence[str], environment: Mapping[str, str], *, prefixed: bool, quiet: bool
    ) -> None:
        self.last_lines: list[str] = []
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "trainer.replica", *args],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        prefix = f"[{task}] " if prefixed else ""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, prefix, quiet), daemon=True)
        self._reader.start()

    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Sends a signal to the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def join(self) -> None:
        """Waits for its end and its last line."""
        self._process.wait()
        self._reader.join(5)

    def _read(self, lines: IO[str], prefix: str, quiet: bool) -> None:
        with lines:
            for line in lines:
                self.last_lines = [*self.last_lines, line.rstrip("\n")][-_KEPT_LINES:]
                if not quiet:
                    print(f"{prefix}{line}", end="", file=sys.stderr, flush=True)


def _wait(running: Mapping[Task, _Process]) -> dict[Task, int]:
    while True:
        codes = {task: process.code() for task, process in running.items()}
        for task, code in codes.items():
            if code not in (0, None):
                running[task].join()
                why = next((line for line in running[task].last_lines if line.startswith("error: ")), "")
                reason = why.removeprefix("error: ") or "see its output above"
                raise MillraceError(f"{task}: ended with exit code {code}; the other processes were ended: {reason}")
        ended = {task: code for task, code in codes.items() if code is not None}
        if len(ended) == len(running):
            for process in running.values():
                process.join()
            return ended
        time.sleep(0.1)


def _end(running: Mapping[Task, _Process]) -> None:
    """Asks what still runs to end, the chief first so that it saves, and kills what does not."""
    for task in sorted(running, key=lambda task: task.role != CHIEF):
        if running[task].code() is None:
            running[task].signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(process.code() is None for process in running.values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in running.values():
        process.signal(signal.SIGKILL)
        process.join()


def _addresses(sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Free ports of loopback; all are held until all are found, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(sum(sizes.values()))]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        ports = iter([sock.getsockname()[1] for sock in sockets])
        return {role: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count)) for role, count in sizes.items()}
