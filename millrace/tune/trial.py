"""One trial of a study: a training in a process of its own, which is watched by reading its evaluations.

The processes are forked from a process that has already imported TensorFlow (`preloaded`), so that only the first trial
waits for the import. A training that the kernel kills does not end the study. If the study's process ends, its training
ends too.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from schemas.errors import MillraceError
from trainer.model_dir.model_json import Metrics, read_evaluations

LOG = "log.txt"
GRACE_SECONDS = 60.0  # for a training that was asked to end, before it is killed
_LOG_TAIL_BYTES = 100_000


class TrainingProcess:
    """A running training.

    Args:
      arguments: the arguments of `millrace train`.
      model_dir: the training's model directory, which is created if necessary. The training's output is appended to its
        `log.txt`.
    """

    def __init__(self, arguments: Sequence[str], model_dir: str) -> None:
        self._model_dir = model_dir
        self._evaluations_read = 0
        os.makedirs(model_dir, exist_ok=True)
        self._log = os.path.join(model_dir, LOG)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["millrace.tune.preloaded"])
        self._process = context.Process(target=_train, args=(list(arguments), self._log))
        self._process.start()

    def wait(self, seconds: float) -> int | None:
        """Waits at most `seconds` for the training to end. Returns its exit code; None if it is still running."""
        self._process.join(seconds)
        return self._process.exitcode

    def end(self) -> None:
        """Asks the training to end by SIGTERM, and kills it if it does not end in time."""
        self._process.terminate()
        self._process.join(GRACE_SECONDS)
        self._process.kill()
        self._process.join()

    def new_evaluations(self) -> list[Metrics]:
        """Returns the evaluations since the last call; the first call returns all, even from before an interruption."""
        evaluations = read_evaluations(self._model_dir)
        new = evaluations[self._evaluations_read :]
        self._evaluations_read = len(evaluations)
        return new

    def failure(self) -> MillraceError:
        """Returns the error of a training that has ended with an exit code other than 0."""
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            return MillraceError("the process was killed; the kernel does that if memory runs out")
        lines = Path(self._log).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if errors:
            return MillraceError(errors[-1])
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return MillraceError(f"the training ended with {how}; see {self._log}")


def _train(arguments: Sequence[str], log: str) -> None:
    """Trains in this process, and exits with the training's exit code."""
    os.setsid()  # Ctrl-C goes to the study, which then ends this process
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    parent = multiprocessing.parent_process()
    if parent is None:
        sys.exit(1)
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    from trainer import task

    print("$ millrace train", " ".join(arguments), file=sys.stderr, flush=True)
    sys.exit(task.main(arguments))


def _end_with(sentinel: int) -> None:
    """Kills this process as soon as its parent has ended, so that a continued study finds the model directory free."""
    multiprocessing.connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
