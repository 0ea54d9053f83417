"""Runs commands in children of a process that has imported the heavy libraries once, and kills them when told to.

Reads a line of JSON from stdin, a list of commands that are to run side by side: {"argv": [...], "program":
"preprocess" or "dataset", "kill_after": seconds, "kill_at": n}; all but the first may be missing. Answers with a line,
a list of {"status": exit status, or -signal, "seconds": ..., "steps": ..., "stderr": ...}. `kill_at` n kills the
process with SIGKILL just before its n-th step: a file or folder renamed, removed, made or opened for writing; of a job
or a replay those since the phase "committing" began, cleaning up included. "steps" has a letter for each step that it
took: "m" for the manifest's, "." for others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from typing import Any, BinaryIO, NoReturn

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")


@dataclasses.dataclass
class Job:
    """A job that runs in a child process."""

    argv: list[str]
    program: str = "preprocess"
    kill_after: float = 600.0
    kill_at: int | None = None

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.steps: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the report
        self.stderr: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.pid = os.fork()
        if not self.pid:
            self._child()

    def _child(self) -> NoReturn:
        from beam_jobs import preprocess
        from schemas.dataset import command

        main = preprocess.main if self.program == "preprocess" else command.main
        os.dup2(self.stderr.fileno(), 1)
        os.dup2(self.stderr.fileno(), 2)
        die_at(self.kill_at, self.steps.fileno(), phase="committing" if self.program == "preprocess" else None)
        status = 3
        try:
            status = main(self.argv)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def report(self) -> dict[str, Any] | None:
        """How it ended, once it has; kills it when its time is over."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        seconds = time.monotonic() - self.begun
        if not pid:
            if seconds >= self.kill_after:
                os.kill(self.pid, signal.SIGKILL)
                self.kill_after = float("inf")
            return None
        written = []
        for file in (self.steps, self.stderr):
            file.seek(0)
            written.append(file.read())
            file.close()
        stderr = written[1].decode(errors="replace")
        return {
            "status": os.waitstatus_to_exitcode(status),
            "seconds": seconds,
            "steps": written[0].decode(),
            "stderr": stderr,
        }


def die_at(n: int | None, told: int, *, phase: str | None) -> None:
    """Has this process killed before its n-th step in the phase, or of all; writes a letter to `told` for each."""
    from beam_jobs.core import progress
    from schemas.dataset import layout

    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if phase in (None, progress.counters.phase) and (writes or event in STEPS):
            count += 1
            if count == n:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(told, b"m" if any(layout.MANIFEST in str(a) for a in arguments) else b".")

    sys.addaudithook(hook)


def serve() -> None:
    """Runs what stdin asks for until it ends. This process has no threads and runs no TensorFlow: it can be forked."""
    import tensorflow as tf  # noqa: F401

    from beam_jobs.output import pipeline_end  # noqa: F401

    for line in sys.stdin:
        jobs = [Job(**asked) for asked in json.loads(line)]
        reports: dict[int, dict[str, Any]] = {}
        while len(reports) < len(jobs):
            time.sleep(0.002)
            for i, job_ in enumerate(jobs):
                if i not in reports and (report := job_.report()):
                    reports[i] = report
        print(json.dumps([reports[i] for i in range(len(jobs))]), flush=True)


if __name__ == "__main__":
    serve()
