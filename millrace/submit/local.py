"""`millrace submit local`: runs the processes of a training on this machine, and prints their output."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from millrace.submit.command import SubmitOptions
from millrace.submit.training import read_training
from schemas import command, interrupts
from schemas.errors import MillraceError
from trainer.strategies.cluster import CHIEF, PS, Cluster, Task

GRACE_SECONDS = 30.0  # after this time, processes that were asked to end are killed


def submit(options: SubmitOptions, training_argv: Sequence[str] | None, prog: str) -> command.Report:
    """Runs the processes of a training until they end.

    Args:
      options: the options of the command.
      training_argv: the arguments after `--`; None: there was no `--`.
      prog: the command as it was typed, for messages.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong.
      MillraceError: a process failed; the other processes were ended.
      Interrupted: Ctrl-C was pressed; all processes were ended.
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
      environment: the environment variables of all processes.
      quiet: do not print the output of the processes.

    Returns:
      The exit code of each task; all of them are 0.

    Raises:
      MillraceError: a task has failed.
    """
    addresses = _addresses(sizes)
    tasks = [Task(role, index) for role, count in sizes.items() for index in range(count)]
    processes: dict[Task, subprocess.Popen[str]] = {}
    with ThreadPoolExecutor(len(tasks)) as pool:
        try:
            # False sorts before True: the parameter servers start first, because the others connect to them.
            for task in sorted(tasks, key=lambda task: task.role != PS):
                own = {name: value for name, value in environment.items() if name not in ("TF_CONFIG", "CLUSTER_SPEC")}
                processes[task] = subprocess.Popen(  # noqa: S603 - our own command
                    [sys.executable, "-m", "trainer.replica", *args],
                    env={**own, "TF_CONFIG": Cluster(addresses, task).named()},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,  # so that Ctrl-C reaches only this process, which ends the others
                )
            prefixes = {task: f"[{task}] " if len(tasks) > 1 else "" for task in tasks}
            ends = {pool.submit(_follow, processes[task], prefixes[task], quiet): task for task in tasks}
            for end in as_completed(ends):
                if error := end.result():
                    raise MillraceError(
                        f"{ends[end]}: ended with exit code {processes[ends[end]].returncode}; the other processes "
                        f"were ended: {error}"
                    )
            return {task: process.returncode for task, process in processes.items()}
        except KeyboardInterrupt:
            advice = "run the command again to resume from the last checkpoint"
            raise interrupts.Interrupted(f"interrupted; {advice}") from None
        finally:
            _end(processes)


def _follow(process: subprocess.Popen[str], prefix: str, quiet: bool) -> str:
    """Prints a process's output until it ends. Returns why it failed; '' if it succeeded."""
    error = "see its output above"
    with process:  # at its end, waits for the process and closes the pipe
        for line in process.stdout or ():
            if line.startswith("error: "):
                error = line.removeprefix("error: ").rstrip("\n")
            if not quiet:
                print(f"{prefix}{line}", end="", file=sys.stderr, flush=True)
    return error if process.returncode else ""


def _end(processes: Mapping[Task, subprocess.Popen[str]]) -> None:
    """Ends all processes that still run.

    First asks all except the parameter servers to end: the chief first, so that it can save a checkpoint. Then kills
    whatever still runs, including the parameter servers.
    """
    # False sorts before True: the chief is first.
    ending = [task for task in sorted(processes, key=lambda task: task.role != CHIEF) if task.role != PS]
    for task in ending:
        if processes[task].poll() is None:
            _signal(processes[task], signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for task in ending:
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[task].wait(max(0.0, deadline - time.monotonic()))
    for process in processes.values():
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[str], number: int) -> None:
    """Sends a signal to a process and to all processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _addresses(sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Returns an address with a free port on this machine for each process, by role.

    All sockets stay open until there is one for each process, so that the ports differ.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(sum(sizes.values()))]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        ports = iter([sock.getsockname()[1] for sock in sockets])
        return {role: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count)) for role, count in sizes.items()}
