"""Server processes on loopback, waiting for what another process does, and interrupts that Python drops."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

BUILT = Path(__file__).parents[2] / ".cloud" / "bin"  # by make cloud-tools
PATIENCE = 300  # seconds until a server must listen


def built(binary: Path) -> str:
    """The path of a server's program, which has to be there."""
    if not binary.exists():
        pytest.fail(f"{binary}: missing; run make cloud-tools", pytrace=False)
    return str(binary)


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to clients."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def running(
    command: Sequence[str], *, port: int, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a server as the leader of a process group, and ends the group.

    Args:
      command: the server, which listens on `port` of loopback.
      port: the port.
      log: the file for its output.
      cwd: its folder; None: this process's.
      env: its environment; None: this process's.
    """
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=cwd, env=env, start_new_session=True)
    try:
        wait_until_it_listens(process, port, log)
        yield process
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[Any]) -> None:
    """Ends the processes of a group: asks them, and kills what is left after some seconds."""
    for sign, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Fails if the server ends, or does not listen in time."""
    for _ in range(PATIENCE * 20):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, f"{process.args!r} ended: {log.read_text()}"
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} did not listen in {PATIENCE} seconds: {log.read_text()}")


SECONDS = 600  # only a hang reaches this limit


def until(true: Callable[[], object], what: str = "what is waited for") -> None:
    """Returns once `true()`; fails if that does not come, and names `what` was waited for."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS} s"
        time.sleep(0.02)


class InterruptedAndSilent:
    """Receives the signal while it is garbage-collected; the exception is dropped, as TensorFlow does."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self._number = number

    def __del__(self) -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(self._number)
