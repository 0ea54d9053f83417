"""The process of a trial: a training whose output goes to a file, and which ends when the study's process does."""

from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Sequence


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
    locked = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(locked, fcntl.LOCK_SH)
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
