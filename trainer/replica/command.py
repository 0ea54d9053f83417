"""Runs one process of a training that was submitted as several: `python -m trainer.replica ARGS`.

It starts `python -m trainer.task ARGS` with the TF_CONFIG of its role, on any platform. This process, which imports no
TensorFlow, ends a parameter server when all others have ended, and keeps the chief until the evaluator has exported.

For that, each process writes a small file when it has ended, in the model directory. A service ends all replicas with
the chief, and so would end the evaluator before its last export; parameter servers never end by themselves. Both wait
for such files, which need no connection between the processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import FrameType

from schemas import command, storage
from schemas.errors import MillraceError
from schemas.storage.json_files import parse_json
from trainer import task as training
from trainer.strategies.cluster import CHIEF, EVALUATOR, PS, VARIABLE, Cluster, Task, read_cluster

FOLDER = "replicas"
POLL_SECONDS = 5.0
RESTART_SECONDS = 900.0  # a task that has failed, and that nobody starts again in this time, has failed for good


class Ends:
    """The files by which the processes of one job tell each other that they have ended.

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
        """Returns whether all of these tasks have ended well; False if the files cannot be read now.

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


PROG = "python -m trainer.replica"
JOB = ("MILLRACE_JOB", "CLOUD_ML_JOB_ID")  # variables that name the job; Vertex AI sets the second
GRACE_SECONDS = 20.0  # for a parameter server that is asked to end


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Performs this process's role. Returns the exit code, which is the training's own."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options = training.parse_options(argv, prog)
    cluster = read_cluster(os.environ)
    arguments = [sys.executable, "-m", training.__name__, *argv]
    tf_config = None if cluster is None else cluster.tf_config()
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if tf_config is None or cluster is None:
        sys.stdout.flush()
        os.execve(sys.executable, arguments, environment)  # noqa: S606 - our own command, which takes this one's place
    job = next((os.environ[name] for name in JOB if os.environ.get(name)), "job")
    code = _perform(cluster, Ends(options.model_dir, job), arguments, {**environment, VARIABLE: tf_config})
    return command.Report("", {}, code)


def _perform(cluster: Cluster, ends: Ends, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the training in this process's role. Returns its exit code.

    Raises:
      MillraceError: another process has failed for good.
    """
    own = cluster.task
    peers = [task for task in cluster.tasks if task.role != PS and task != own]
    evaluators = [task for task in peers if task.role == EVALUATOR]
    ends.clear(own)
    with _child(arguments, environment) as (child, signals):
        while (code := _ended(child)) is None:
            if not signals and ends.done(peers) and own.role == PS:
                return 0
    if signals:  # a machine that is taken away: a service starts this task again
        return 128 + signals[-1]
    ends.write(own, code)
    if own.role == CHIEF and code == 0 and not ends.done(evaluators):
        print("waiting for the evaluator, which exports", file=sys.stderr, flush=True)
        while not ends.done(evaluators):
            time.sleep(POLL_SECONDS)
    return code


@contextlib.contextmanager
def _child(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A process that is asked to end if the block ends first, and the signals that were passed on to it."""
    child, signals = subprocess.Popen(arguments, env=environment), []  # noqa: S603 - our own command

    def pass_on(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield child, signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
        child.kill()
        child.wait()


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process, waited for a while."""
    try:
        return child.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None
