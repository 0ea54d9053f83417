"""The commands under attack, each in a child process that starts at once: forked off one that has imported all."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 240.0  # seconds that a child may take; what takes longer hangs


@dataclasses.dataclass(frozen=True)
class Ask:
    """A command to run, and what is to befall it.

    `program` is one of `fork_server.PROGRAMS`. `signals` are (seconds after the call, signal); `delay` is how long it
    waits before it begins. Before its `struck_at`th change to a file under `watched` it gets the signal `struck_by`.
    `lease` is (beat, stale) seconds; `system` has it take itself for a process of another machine.
    """

    program: str
    argv: tuple[str, ...]
    signals: tuple[tuple[float, int], ...] = ()
    delay: float = 0.0
    struck_at: int | None = None
    struck_by: int = signal.SIGKILL
    watched: str | None = None
    lease: tuple[float, float] | None = None
    system: str | None = None

    @property
    def command(self) -> str:
        """What a person would type."""
        return " ".join(["python -m", self.program, *self.argv])


@dataclasses.dataclass(frozen=True)
class Answer:
    """How a command ended: its exit status (negative: the signal), seconds, output, and changes to watched files."""

    status: int
    seconds: float
    output: str
    steps: int

    @property
    def crashed(self) -> bool:
        """Whether it ended otherwise than a command may, or hangs."""
        return self.status not in (0, 1, 2) or "Traceback (most recent call last)" in self.output


class Children:
    """The forking process. It is started anew when it dies or after many commands, since forks inherit what leaks."""

    def __init__(self, temp: Path, *, renew_after: int = 400) -> None:
        self._temp, self._renew_after = temp, renew_after
        self._server: subprocess.Popen[str] | None = None
        self._served = 0

    def run(self, *asks: Ask) -> list[Answer]:
        """Runs commands side by side, and returns when all have ended."""
        if self._server is None or self._served >= self._renew_after or self._server.poll() is not None:
            self._start()
        server = self._server
        if server is None or server.stdin is None:
            raise RuntimeError("the process that runs commands did not start")
        self._served += len(asks)
        try:
            server.stdin.write(json.dumps([dataclasses.asdict(a) for a in asks]) + "\n")
            server.stdin.flush()
            line = self._line(server)
        except (BrokenPipeError, TimeoutError):
            line = ""
        if not line:
            self.close()
            return [Answer(-99, 0.0, "the process that runs commands died or hangs", 0) for _ in asks]
        return [Answer(**answer) for answer in json.loads(line)]

    def one(self, program: str, *argv: str, **how: Any) -> Answer:
        """Runs one command."""
        return self.run(Ask(program, tuple(argv), **how))[0]

    def _line(self, server: subprocess.Popen[str]) -> str:
        if server.stdout is None:
            return ""
        with selectors.DefaultSelector() as selector:
            selector.register(server.stdout, selectors.EVENT_READ)
            if not selector.select(PATIENCE + 60):
                raise TimeoutError
        return server.stdout.readline()

    def _start(self) -> None:
        self.close()
        self._temp.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "TMPDIR": str(self._temp), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self._server = subprocess.Popen(  # noqa: S603 - this package, by this Python
            [sys.executable, "-m", "tools.attack.fork_server", str(PATIENCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
            start_new_session=True,
        )
        self._served = 0

    def close(self) -> None:
        """Ends the process; its children end with it."""
        if self._server is not None:
            server, self._server = self._server, None
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            for pipe in (server.stdin, server.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
