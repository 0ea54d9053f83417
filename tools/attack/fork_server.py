"""Runs commands in children of a process that has imported the heavy libraries once, and sends them signals.

Reads a line of JSON from stdin, a list of `children.Ask`s that run side by side, and answers with a line, a list of
`children.Answer`s. This process has no threads and runs no TensorFlow, so that it can be forked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, BinaryIO, NoReturn

from schemas.libraries import quick_import

PROGRAMS = {  # as typed behind `python -m`, and the function that takes its arguments
    "beam_jobs.preprocess": "beam_jobs.preprocess:main",
    "schemas.dataset": "schemas.dataset.command:main",
    "trainer.task": "trainer.task:main",
    "trainer.predict": "trainer.predict:main",
    "tools.attack.opening": "tools.attack.opening:main",
    "tools.attack.asking": "tools.attack.asking:main",
}
HEAVY = (
    "tensorflow",
    "beam_jobs.runtime.job",
    "beam_jobs.output.pipeline_end",
    "trainer.loop.train",
    "trainer.model_dir.checkpoints",
    "trainer.predict",
)
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
KEPT_OUTPUT = 20_000
CRASHED = 70


@dataclasses.dataclass
class Child:
    """A command in a process of its own; see `children.Ask`."""

    program: str
    argv: list[str]
    signals: list[tuple[float, int]]
    delay: float
    struck_at: int | None
    struck_by: int
    watched: str | None
    lease: tuple[float, float] | None
    system: str | None

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.steps: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the answer
        self.output: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.signals = sorted((float(at), number) for at, number in self.signals)
        self.pid = os.fork()
        if not self.pid:
            self._run()

    def _run(self) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        status = CRASHED
        try:
            for number in (1, 2):
                os.dup2(self.output.fileno(), number)
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            time.sleep(self.delay)
            if self.lease is not None:
                shorten_lease(*self.lease)
            if self.system is not None:
                claim_system(self.system)
            if self.watched is not None:
                count_changes(self.watched, self.steps.fileno(), self.struck_at, self.struck_by)
            module, _, function = PROGRAMS[self.program].partition(":")
            status = getattr(importlib.import_module(module), function)(self.argv)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def answer(self, patience: float) -> dict[str, Any] | None:
        """How it ended, once it has; sends the signals that are due."""
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        seconds = time.monotonic() - self.begun
        if not ended:
            while self.signals and self.signals[0][0] <= seconds:
                os.kill(self.pid, self.signals.pop(0)[1])
            if seconds > patience:
                os.kill(self.pid, signal.SIGKILL)
            return None
        texts = []
        for file in (self.steps, self.output):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - KEPT_OUTPUT) if file is self.output else 0)
            texts.append(file.read())
            file.close()
        output = texts[1].decode(errors="replace")
        code = os.waitstatus_to_exitcode(status) if seconds <= patience else -99
        return {"status": code, "seconds": seconds, "output": output, "steps": len(texts[0])}


def shorten_lease(beat: float, stale: float) -> None:
    """Has leases of this process go stale sooner."""
    from schemas.dataset import lease

    lease.BEAT_SECONDS, lease.STALE_SECONDS = beat, stale
    defaults = getattr(lease.hold, "__wrapped__", lease.hold).__kwdefaults__ or {}
    defaults.update({k: v for k, v in (("beat_seconds", beat), ("stale_seconds", stale)) if k in defaults})


def claim_system(name: str) -> None:
    """Has this process pass for one of another machine, whose processes cannot be seen here."""
    import socket

    from schemas.dataset import holders

    socket.gethostname = lambda: name
    if hasattr(holders, "_system"):
        holders._system = lambda: name


def count_changes(folder: str, told: int, struck_at: int | None, struck_by: int) -> None:
    """Writes a letter to `told` before each change to a file under `folder`; sends a signal before one of them."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and any(isinstance(a, str) and a.startswith(folder) for a in arguments[:2]):
            count += 1
            if count == struck_at:
                os.kill(os.getpid(), struck_by)
            os.write(told, b".")

    sys.addaudithook(hook)


def serve(patience: float) -> None:
    """Runs what stdin asks for until it ends."""
    quick_import(*HEAVY)
    running: list[Child] = []

    def end(*_: object) -> NoReturn:
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    for line in sys.stdin:
        children = [Child(**asked) for asked in json.loads(line)]
        running[:] = children
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(children):
            time.sleep(0.003)
            for i, child in enumerate(children):
                if i not in answers and (answer := child.answer(patience)):
                    answers[i] = answer
                    running.remove(child)
        print(json.dumps([answers[i] for i in range(len(children))]), flush=True)


if __name__ == "__main__":
    serve(float(sys.argv[1]))
