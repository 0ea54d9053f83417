"""A worker pool on the launcher's machine, for `--environment_type LOOPBACK` and for PrismRunner.

Beam itself would run such workers as threads of the launcher, where they print the traceback of every error to its
standard error, also after the job has ended. Here they are processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from schemas.errors import MillraceError

LISTEN_SECONDS = 60.0


@contextlib.contextmanager
def running(*, verbose: bool) -> Iterator[str]:
    """Starts a pool, and ends it with its workers.

    Args:
      verbose: its workers print to this process's standard error.

    Yields:
      Its address.

    Raises:
      MillraceError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryFile() as log:
        output = 2 if verbose else log  # standard error
        pool = subprocess.Popen(  # noqa: S603 - this very module
            [sys.executable, "-m", "beam_jobs.runtime.worker_pool", str(os.getpid()), str(port)],
            stdout=output,
            stderr=output,
            # The pool starts workers by the name `python`, and they import what this process imports.
            env={
                **os.environ,
                "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
            start_new_session=True,
        )
        try:
            _wait(pool, port)
            yield f"localhost:{port}"
        finally:
            _end(pool)


def _wait(pool: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + LISTEN_SECONDS
    while time.monotonic() < deadline and pool.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
            return
        time.sleep(0.05)
    raise MillraceError("the worker pool on this machine did not start; --verbose shows what it printed")


def _end(pool: subprocess.Popen[bytes]) -> None:
    """Ends the group of processes that the pool leads."""
    for sign, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pool.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            pool.wait(seconds)


def main(launcher: int, port: int) -> None:
    """Serves until the launcher has ended, even if it was killed."""
    from apache_beam.runners.worker import worker_pool_main

    def end_with_launcher() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_launcher, daemon=True).start()
    worker_pool_main.main([f"--service_port={port}"])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
