"""Runs commands in children of a process that has imported the heavy libraries once; kills them or copies their files.

Reads lines of JSON from stdin, each a list of commands to run at the same time: {"argv": [...], "program":
"preprocess", "predict", "dataset" or "job", "kill_after": seconds, "kill_at": n, "snapshots": [folder, copies]}; all
but the first may be missing. Answers with a line, a list of {"status": exit status or -signal, "seconds": ...,
"steps": ..., "stderr": ...}.

A step is a file or folder that is renamed, removed, created or opened for writing; in a job or a replay, only steps
since the phase "committing" began count, cleanup included. `kill_at` n kills the process with SIGKILL just before its
n-th step. `snapshots` copies the folder to copies/n just before each step: the copy is what SIGKILL would leave.
"steps" has a letter for each step: "m" for a step on the manifest, "." for others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
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
    snapshots: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.steps: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the report
        self.stderr: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.pid = os.fork()
        if not self.pid:
            self._child()

    def _child(self) -> NoReturn:
        from beam_jobs import job, predict, preprocess
        from schemas.dataset import command

        main = {"preprocess": preprocess.main, "dataset": command.main, "job": job.main, "predict": predict.main}[
            self.program
        ]
        os.dup2(self.stderr.fileno(), 1)
        os.dup2(self.stderr.fileno(), 2)
        phase = "committing" if self.program in ("preprocess", "predict") else None
        sys.addaudithook(Steps(phase, letters=self.steps.fileno(), kill_at=self.kill_at, snapshots=self.snapshots))
        status = 3
        try:
            status = main(self.argv)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def report(self) -> dict[str, Any] | None:
        """The job's result once it has ended. Kills the job when its time is up."""
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


class Steps:
    """Counts this process's steps in a phase, or all of them; writes a letter to the file `letters` for each."""

    def __init__(
        self, phase: str | None, *, letters: int, kill_at: int | None, snapshots: tuple[str, str] | None
    ) -> None:
        self.phase, self.letters, self.kill_at, self.snapshots = phase, letters, kill_at, snapshots
        self.count = 0
        self._lock = threading.Lock()  # the lease's thread waits while a copy is made
        self._copying: int | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        from beam_jobs.core import progress

        if self._copying == threading.get_ident() or self.phase not in (None, progress.counters.phase):
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in STEPS:
            with self._lock:
                self._step(arguments)

    def _step(self, arguments: tuple[Any, ...]) -> None:
        from schemas.dataset import layout

        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.snapshots is not None:
            self._copying = threading.get_ident()
            copy(self.snapshots[0], os.path.join(self.snapshots[1], str(self.count)))
            self._copying = None
        os.write(self.letters, b"m" if any(layout.MANIFEST in str(a) for a in arguments) else b".")


def copy(folder: str, target: str) -> None:
    """Copies a folder. Starts again if another thread has removed a file meanwhile."""
    while True:
        try:
            shutil.copytree(folder, target)
        except shutil.Error:
            shutil.rmtree(target)
        else:
            return


def serve() -> None:
    """Runs commands until stdin ends. This process has no threads and runs no TensorFlow, so that it can be forked."""
    from schemas.libraries import quick_import

    quick_import("tensorflow", "beam_jobs.output.pipeline_end")

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
