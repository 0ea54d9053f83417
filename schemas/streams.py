"""Makes the standard streams of a command usable, even if they are closed, full, or broken pipes."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from schemas.errors import readable


def open_standard_streams() -> bool:
    """Prepares standard input, output and error of this process for use.

    Closed streams are opened on the null device. Otherwise the next file that is opened would get the number of a
    standard stream, and libraries would print into that file. Characters that the encoding of a stream lacks are
    printed as `\\xfc`. Writing to standard error never fails: if it is full or a pipe that nobody reads, the message is
    dropped, because a lost message should not end a job.

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
    """A file that accepts all writes, and drops the bytes that cannot be written."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def print_result(text: str, end: str = "\n") -> str | None:
    """Prints a text to standard output, and flushes it.

    Returns:
      None if the text was printed; otherwise the reason why not. The reason is '' if the reader of a pipe, such as
      `head`, has closed it because it has read enough. After a failure, standard output leads to the null device.
    """
    try:
        print(readable(text), end=end, flush=True)
    except OSError as error:
        # Python flushes standard output once more when it exits, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return None
