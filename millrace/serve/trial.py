"""Tries an export out in a process of its own, before a server that answers others loads it.

Its graph only computes, but may do that without end, in all memory there is, or in an op that crashes. In a process of
low priority, on the CPU, watched by its resident memory and by time, and gone with the server, that harms nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from schemas.concurrency import available_memory
from schemas.errors import MillraceError
from schemas.libraries import quick_import

WATCHED = 0.05  # seconds between looks at the process
SHARE = 0.75  # of the available memory, where no limit is given: the rest is for the requests meanwhile
_NICE = 10
_TEXT = 4000  # characters of a reason, which fit into a pipe
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class Stopped(Exception):
    """The server ends: whether the export is good was not found out."""


def try_out(folder: str, secs: float, memory_mb: int | None, stopped: threading.Event, *, trust: bool) -> None:
    """Loads an export of local disk, and answers its warm-up requests, in a process of its own.

    Args:
      folder: the export.
      secs: that the process may take.
      memory_mb: resident megabytes that it may take; None: most of what is available now.
      stopped: ends the process when it is set.
      trust: load a graph that can do more than compute.

    Raises:
      MillraceError: it is not to be served, took too long or too much memory, or has ended the process.
      Stopped: `stopped` was set.
    """
    most = memory_mb << 20 if memory_mb else int(available_memory() * SHARE)
    took = f"{folder}: loading it and its warm-up took more than"
    process = subprocess.Popen(  # noqa: S603 - this very module
        [sys.executable, "-m", __name__, folder, str(os.getpid()), *(["trust"] if trust else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        start_new_session=True,  # Ctrl-C is for the server
        text=True,
    )
    end = time.monotonic() + secs
    with process:
        try:
            while process.poll() is None:
                if time.monotonic() > end:
                    raise MillraceError(f"{took} {secs:g} s (--check_secs)")
                if _resident(process.pid) > most:
                    why = "--check_mb" if memory_mb else "three quarters of what was available; see --check_mb"
                    raise MillraceError(f"{took} {most >> 20:,} MB ({why})")
                if stopped.wait(WATCHED):
                    raise Stopped
            reason = process.stdout.read().strip() if process.stdout else ""
        finally:
            process.kill()
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise MillraceError(f"{folder}: loading it and its warm-up ended the process that tried it out, by {name}")
    if process.returncode:
        raise MillraceError(reason or f"{folder}: the process that tried it out ended with {process.returncode}")


def _resident(process: int) -> int:
    """Bytes; 0 of a process that has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def main(argv: Sequence[str]) -> int:
    """Takes the export, the number of the server's process, and `trust`; prints why the export is not to be served."""
    from millrace.serve.model import load

    folder, server, *trust = argv
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(server):  # it has ended before
        return 1
    os.nice(_NICE)
    with contextlib.suppress(OSError):  # where memory runs out, the kernel is to end this process, not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    quick_import("tensorflow")
    try:
        load(folder, "1", trust=bool(trust))
    except MillraceError as error:
        print(str(error)[:_TEXT])
        return 1
    except Exception as error:
        print(f"{folder}: cannot be loaded: {type(error).__name__}: {error}"[:_TEXT])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
