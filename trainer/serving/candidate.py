"""A newer export tried out in a process of its own, before a server that answers others loads it.

Its graph only computes, but may do that without end, in all memory there is, or in an op that crashes. There it harms a
process with nothing else to do: on the CPU, of low priority, watched by its resident memory and by time, and gone with
the server, however that ends.
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

from schemas.errors import MillraceError
from schemas.libraries import quick_import
from trainer.serving.limits import CheckLimits

WATCHED = 0.05  # seconds between looks at the process
SHARE = 0.75  # of the memory that is available, where no limit is given: the rest is for the requests meanwhile
_NICE = 10
_TEXT = 4000  # characters of a reason, which fit into a pipe
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class Stopped(Exception):
    """The server ends: whether the export is good was not found out."""


def try_out(folder: str, limits: CheckLimits, stopped: threading.Event, *, trust: bool) -> None:
    """Loads an export of local disk, and answers its warm-up requests, in a process of its own.

    Args:
      folder: the export.
      limits: what the process may take.
      stopped: ends the process when it is set.
      trust: load a graph that can do more than compute.

    Raises:
      MillraceError: it is not to be served, took too long or too much memory, or has ended the process.
      Stopped: `stopped` was set.
    """
    most = limits.memory or int(_available() * SHARE)
    why = "--check_mb" if limits.memory else "three quarters of what was available; see --check_mb"
    arguments = [sys.executable, "-m", __name__, folder, str(os.getpid()), *(["trust"] if trust else [])]
    process = subprocess.Popen(  # noqa: S603 - this very module
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        start_new_session=True,  # Ctrl-C is for the server
    )
    try:
        end = time.monotonic() + limits.secs
        while _running(process):
            if stopped.is_set():
                raise Stopped
            if time.monotonic() > end:
                raise MillraceError(
                    f"{folder}: loading it and its warm-up took more than {limits.secs:g} s (--check_secs)"
                )
            if _resident(process.pid) > most:
                raise MillraceError(f"{folder}: loading it and its warm-up took more than {most >> 20:,} MB ({why})")
        told = process.stdout.read().decode("utf-8", "replace").strip() if process.stdout else ""
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    if stopped.is_set():
        raise Stopped
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise MillraceError(f"{folder}: loading it and its warm-up ended the process that tried it out, by {name}")
    if process.returncode:
        raise MillraceError(told or f"{folder}: the process that tried it out ended with {process.returncode}")


def main(argv: Sequence[str]) -> int:
    """Takes the export, the number of the server's process, and `trust`; prints why the export is not to be served."""
    from trainer.serving.loaded import load

    folder, server, *trust = argv
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(server):  # it has ended before
        return 1
    os.nice(_NICE)
    with contextlib.suppress(OSError):  # where memory runs out, the kernel is to end this process, not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    quick_import("tensorflow")
    try:
        load(folder, "1", trust=bool(trust)).close()
    except MillraceError as error:
        print(str(error)[:_TEXT])
        return 1
    except Exception as error:
        print(f"{folder}: cannot be loaded: {type(error).__name__}: {error}"[:_TEXT])
        return 1
    return 0


def _running(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(WATCHED)
    return process.returncode is None


def _resident(process: int) -> int:
    """Bytes; 0 of a process that has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _available() -> int:
    """Bytes that processes may still take, of this machine and of the container that this one runs in."""
    found = [int(line.split()[1]) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    for line in _lines("/proc/self/cgroup"):
        group = Path("/sys/fs/cgroup") / line.partition("::")[2].lstrip("/")
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or it says "max"
            most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            cached = [int(each.split()[1]) for each in _lines(f"{group}/memory.stat") if each.startswith("file ")]
            found.append(most - used + sum(cached))
    return min(found)


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
