"""Makes the standard streams of a command usable, whatever its caller has made of them: closed, full, a broken pipe."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from schemas.errors import readable


def open_standard_streams() -> bool:
    """Prepares the standard streams of this process, whatever its caller has made of them.

    Streams that are closed are opened on the null device: else the next file that is opened would get the number of one
    of them, and libraries would print into it. What an encoding lacks is printed as `\\xfc`. What cannot be written to
    standard error, which may be full or a pipe that nobody reads, is dropped: a note that is lost ends no job.

    Returns:
      Whether standard output is closed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    is_closed = sys.stdout is None
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # it stays open as long as the process lives
            setattr(sys, name, open(null, "r+", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        lossy = io.BufferedWriter(_LossyFile(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(lossy, sys.stderr.encoding, "backslashreplace", line_buffering=True)
    return is_closed


class _LossyFile(io.FileIO):
    """A file that takes everything, and drops what cannot be written."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def print_result(text: str, end: str = "\n") -> str | None:
    """Prints to standard output at once.

    Returns:
      None if it was printed; else why not, which is empty where a reader such as `head` has read enough. What is
      printed after that goes nowhere.
    """
    try:
        print(readable(text), end=end, flush=True)
    except OSError as error:
        # Python flushes standard output once more when it exits, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return None
