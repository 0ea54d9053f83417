"""`python -m trainer.replica ARGS`: `python -m trainer.task ARGS` as one process of several, on any platform.

The training runs in a process of its own with the TF_CONFIG of its role. This one, which imports no TensorFlow, ends a
parameter server when all others have ended, and keeps the chief until the evaluator has exported.

The arguments of a trial of Vertex AI's tuner, which appends the values that it tries to those of the training.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from schemas import command
from trainer import task as training
from trainer.replica.cluster import CHIEF, EVALUATOR, POLL_SECONDS, PS, Cluster, Ends, read_cluster

TRIAL = "CLOUD_ML_TRIAL_ID"  # the variable that Vertex AI sets in a trial


def trial_arguments(argv: Sequence[str], prog: str) -> list[str]:
    """The arguments as the training's parser takes them.

    The tuner appends `--NAME=VALUE` or `--NAME VALUE`, and knows nothing of `--hparams`. So what is no flag of the
    training is taken for a hyper-parameter of the model. The training's own flags, such as `--batch_size`, stay as they
    are; the last one counts.
    """
    _, unknown = training.parser(prog).parse_known_args(argv)
    kept: list[str] = []
    chosen: list[str] = []
    place = 0
    while place < len(argv):
        argument, following = argv[place], argv[place + 1 : place + 2]
        name, equals, _ = argument.partition("=")
        place += 1
        if not name.startswith("--") or argument not in unknown:
            kept.append(argument)
        elif equals:
            chosen.append(argument[2:])
        elif following and not following[0].startswith("--"):
            chosen.append(f"{name[2:]}={following[0]}")
            place += 1
        else:
            kept.append(argument)
    return [*kept, *(part for setting in chosen for part in ("--hparams", setting))]


PROG = "python -m trainer.replica"
JOB = ("MILLRACE_JOB", "CLOUD_ML_JOB_ID")  # variables that name the job; Vertex AI sets the second
GRACE_SECONDS = 20.0  # for a parameter server that is asked to end


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Performs this process's role. Returns the exit code, which is the training's own."""
    return command.run(_run, argv, prog=prog)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The parser of the arguments, which are those of `python -m trainer.task`."""
    return training.parser(prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    argv = trial_arguments(argv, prog) if TRIAL in os.environ else argv
    options = training.parse_options(argv, prog)
    cluster = read_cluster(os.environ)
    arguments = [sys.executable, "-m", training.__name__, *argv]
    tf_config = None if cluster is None else cluster.tf_config()
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    if tf_config is None or cluster is None:
        sys.stdout.flush()
        os.execve(sys.executable, arguments, environment)  # noqa: S606 - our own command, which takes this one's place
    job = next((os.environ[name] for name in JOB if os.environ.get(name)), "job")
    code = _perform(cluster, Ends(options.model_dir, job), arguments, {**environment, "TF_CONFIG": tf_config})
    return command.Report("", {}, code)


def _perform(cluster: Cluster, ends: Ends, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the training in this process's role. Returns its exit code.

    Raises:
      MillraceError: another process has failed for good.
    """
    own = cluster.task
    others = [task for task in cluster.tasks if task.role != PS and task != own]
    evaluators = [task for task in others if task.role == EVALUATOR]
    ends.clear(own)
    with _child(arguments, environment) as (child, signals):
        while (code := _ended(child)) is None:
            if not signals and ends.done(others) and own.role == PS:
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
    signals: list[int] = []
    child = subprocess.Popen(arguments, env=environment)  # noqa: S603 - our own command

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
