"""Trainings in processes of their own, and what they report meanwhile.

They are forked from a process that has imported TensorFlow, so that only the first one waits for that, and they share
that memory. One that is killed, by the kernel if memory runs out, takes no other with it. Its output goes to a file,
and it ends when the study's process does."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from schemas import storage
from schemas.errors import MillraceError, UsageError
from trainer.model_dir.model_json import EVALUATIONS, Metrics, read_evaluations


def run(argv: Sequence[str], log: str, lock: str) -> None:
    """Trains, and exits with the training's exit code.

    Args:
      argv: the arguments of `python -m trainer.task`.
      log: the file that its output is added to.
      lock: a file that is locked, beside other trials, as long as this process lives.
    """
    os.setsid()  # Ctrl-C is for the study, which ends its trials
    with open(log, "ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    storage.lock(os.open(lock, os.O_RDWR | os.O_CREAT, 0o644), shared=True)
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():
        sys.exit(128 + signal.SIGTERM)
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    from trainer import task

    print("$", " ".join(argv), file=sys.stderr, flush=True)
    sys.exit(task.main(argv))


def _end_with(sentinel: int) -> None:
    """Ends this process, as SIGTERM does, when its parent has ended."""
    multiprocessing.connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


LOG = "log.txt"
GRACE_SECONDS = 60.0  # until a training that was asked to end is killed
_STUDY_LOCK, _TRIALS_LOCK = ".study.lock", ".trials.lock"
_TOLD_BYTES = 100_000  # of the end of a log, to say why a training failed


class Training:
    """A training that runs.

    Args:
      argv: its arguments.
      model_dir: its model directory, which is made if need be.
      locks: the study's folder.
    """

    def __init__(self, argv: Sequence[str], model_dir: str, locks: str) -> None:
        self._model_dir = model_dir
        self._seen: tuple[int, int] | None = None
        self._ending: float | None = None
        os.makedirs(model_dir, exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["millrace.tune.preloaded"])
        given = (list(argv), os.path.join(model_dir, LOG), os.path.join(locks, _TRIALS_LOCK))
        self._process = context.Process(target=run, args=given)
        self._process.start()

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        self._process.join(0)
        if self._ending is not None and time.monotonic() > self._ending:
            self._process.kill()
        return self._process.exitcode

    def end(self) -> None:
        """Asks it to end, as SIGTERM does."""
        if self._ending is None:
            self._ending = time.monotonic() + GRACE_SECONDS
            self._process.terminate()

    def wait(self) -> None:
        """Waits until it has ended, which it has been asked for."""
        self._process.join(GRACE_SECONDS)
        self._process.kill()
        self._process.join()

    def evaluations(self) -> list[Metrics] | None:
        """All its evaluations so far; None if there was none since the last call."""
        try:
            found = os.stat(os.path.join(self._model_dir, EVALUATIONS))
        except FileNotFoundError:
            return None
        if (found.st_mtime_ns, found.st_ino) == self._seen:
            return None
        self._seen = found.st_mtime_ns, found.st_ino
        return read_evaluations(self._model_dir)

    def why(self) -> str:
        """Why it has failed: the error that it told, or how it ended."""
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            return "was killed, as the kernel does if memory runs out"
        with open(os.path.join(self._model_dir, LOG), "rb") as log:
            log.seek(-min(_TOLD_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            lines = log.read().decode(errors="replace").splitlines()
        told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if told:
            return told[-1]
        how = f"was ended by signal {-code}" if code < 0 else f"exit code {code}"
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"{how}: {last}" if last else how


@contextlib.contextmanager
def only_one(folder: str, say: Callable[[str], None]) -> Iterator[None]:
    """In the `with` block, this process is the only one that works on the study, and no earlier trial runs.

    Trials of a process that was killed end by themselves, in a moment; until then this waits.

    Raises:
      UsageError: another process works on it.
      MillraceError: an earlier trial does not end.
    """
    with _locked(Path(folder, _STUDY_LOCK)) as study:
        if study is None:
            raise UsageError(f"--study {folder}: another process is at work on this study")
        deadline = time.monotonic() + GRACE_SECONDS
        told = False
        while True:
            with _locked(Path(folder, _TRIALS_LOCK)) as trials:
                if trials is not None:
                    break
            if not told:
                say("waiting for the trials of an earlier process to end")
                told = True
            if time.monotonic() > deadline:
                raise MillraceError(f"{folder}: a trial of an earlier process still runs; end it, and try again")
            time.sleep(0.1)
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes] | None]:
    """The file with a lock of this process alone; None if another holds one."""
    with path.open("ab") as file:
        yield file if storage.lock(file, wait=False) else None
