"""Runs one process of a training that was submitted as several processes: `python -m trainer.replica ARGS`.

It starts `python -m trainer.task ARGS` as a child process, with the TF_CONFIG of its role, and manages the end of the
training. This is needed for two reasons:

* Parameter servers never end by themselves. The parent ends its parameter server when all other processes have ended.
* A service such as Vertex AI ends all replicas when the chief ends, which could end the evaluator before its last
  export. The parent of the chief therefore waits until the evaluator has ended.

To tell the others, each process writes a small file into the model directory when it ends. The processes need no
connection between them. The parent does not import TensorFlow.
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
RESTART_SECONDS = 900.0  # a failed task that is not started again in this time has failed for good


class Ends:
    """The files by which the processes of a job tell each other that they have ended.

    Args:
      model_dir: the model directory, which all processes can reach.
      job: the job's name, which is unique among the trainings in this model directory.
    """

    def __init__(self, model_dir: str, job: str) -> None:
        self._folder = storage.join(model_dir, FOLDER, job)
        self._failed: dict[Task, float] = {}  # the time at which this process first saw that a task has failed

    def clear(self, task: Task) -> None:
        """Removes the file of an earlier attempt at this task."""
        if storage.exists(self._path(task)):
            storage.delete(self._path(task))

    def write(self, task: Task, exit_code: int) -> None:
        """Writes the file of a task that has ended."""
        storage.write_bytes(self._path(task), json.dumps({"exit_code": exit_code}).encode() + b"\n")

    def done(self, tasks: Collection[Task]) -> bool:
        """Returns whether all these tasks have ended with exit code 0.

        Returns False if the files cannot be read at the moment, for example while a restarted task removes its file.

        Raises:
          MillraceError: a task has failed, and has not been started again for `RESTART_SECONDS`.
        """
        try:
            written = set(storage.listdir(self._folder))
            codes = {task: self._read(task) for task in tasks if f"{task}.json" in written}
        except MillraceError:  # or a task is just being restarted, and has removed its file
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
        """Returns the exit code that a task has recorded."""
        return int(parse_json(storage.read_bytes(self._path(task)))["exit_code"])

    def _path(self, task: Task) -> str:
        """Returns the path of a task's file."""
        return storage.join(self._folder, f"{task}.json")


PROG = "python -m trainer.replica"
JOB = ("MILLRACE_JOB", "CLOUD_ML_JOB_ID")  # variables that name the job; Vertex AI sets the second
GRACE_SECONDS = 20.0  # for a child that was asked to end, before it is killed


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Performs this process's role. Returns the exit code of the training."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    """Starts the training in the role of this process; without a cluster, the training replaces this process."""
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
      MillraceError: another process has failed and was not started again.
    """
    own = cluster.task
    peers = [task for task in cluster.tasks if task.role != PS and task != own]
    evaluators = [task for task in peers if task.role == EVALUATOR]
    ends.clear(own)
    with _child(arguments, environment) as (child, signals):
        while (code := _ended(child)) is None:
            if not signals and ends.done(peers) and own.role == PS:
                return 0
    if signals:  # the machine is being taken away; the service will restart this task
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
    """Runs a child process during a `with` block, and passes SIGTERM and SIGINT on to it.

    If the child still runs when the block ends, it gets SIGTERM, and is killed after `GRACE_SECONDS`.

    Yields:
      The child, and the list of signals that were passed on so far.
    """
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
    """Waits up to `POLL_SECONDS` for a process to end. Returns its exit code, or None if it still runs."""
    try:
        return child.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None
