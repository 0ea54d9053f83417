"""Imports large libraries in half the time, and starts TensorFlow without its log lines.

TensorFlow, Beam and tf.Transform create hundreds of thousands of objects that live as long as the process. During an
import, Python's garbage collector searches them again and again. Without the collector, importing TensorFlow takes 1.5
s of CPU instead of 2.8.

TensorFlow's C++ libraries log some lines before they read any setting that would silence them, and further lines for
each feature that the machine lacks. So these lines are filtered out of standard error.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import glob
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from schemas import interrupts

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # TensorFlow reads it before it logs anything: 0 logs all, 2 errors, 3 fatal ones
_NVIDIA = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*")
_NO_GPU = (
    "note: this machine has an NVIDIA GPU, but TensorFlow lists none, so it computes on the CPU; with --verbose its "
    "log says why. If that is meant, set CUDA_VISIBLE_DEVICES=-1"
)

# Matches the log lines of TensorFlow and absl, and the second line of TensorFlow's message about the CPU. Does not
# match the lines of fatal errors, which are always shown.
_LOGGED = (
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] |[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ )\S+:\d+\] "
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
    r"|To enable the following instructions: .*, rebuild TensorFlow with the appropriate compiler flags\.$"
)

# The program of a process that copies lines to standard error and leaves out log lines. It stops after a line that
# ends with a given text. It cannot wait for the end of the pipe, because children of this process may hold it open.
_FILTER = """\
import re, sys
logged, end = (argument.encode() for argument in sys.argv[1:])
for line in sys.stdin.buffer:
    if not re.match(logged, line):
        sys.stdout.buffer.write(line.removesuffix(end))
        sys.stdout.buffer.flush()
    if line.endswith(end):
        break
"""

_starting = threading.RLock()


def quick_import(*names: str) -> None:
    """Imports modules while the garbage collector is off, and excludes all objects of that time from later collections.

    Does nothing if the modules are imported already.
    """
    if all(name in sys.modules for name in names):
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
        # Moves all objects that exist now out of the collector's sight.
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def starting_tensorflow(*, verbose: bool = False, own_process: bool = True) -> Iterator[None]:
    """Starts TensorFlow quietly: the block imports TensorFlow and sets it up.

    During the block, lines of TensorFlow's log are left out of standard error. At the block's end TensorFlow looks for
    its devices. If the machine has a GPU that TensorFlow does not find, a note says so. If TensorFlow was imported
    before, only the block runs.

    Args:
      verbose: leave nothing out, and let TensorFlow log more than errors.
      own_process: whether the process is one of our commands, not a user's program that calls our API. In our own
        processes, environment variables are set that also hold for child processes: Keras 2, which Estimator needs, and
        the level of the log.
    """
    with _starting, contextlib.ExitStack() as stack:
        if "tensorflow" in sys.modules:
            yield
            return
        if own_process:
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Estimator needs Keras 2; do not import Keras 3, too
        # Errors need not be logged: TensorFlow also raises them. Or they are harmless, such as that oneDNN leaves the
        # operations of images to other libraries.
        if LOG_LEVEL not in os.environ:
            os.environ[LOG_LEVEL] = "0" if verbose else "3"
            if not own_process:
                stack.callback(os.environ.pop, LOG_LEVEL)
        with contextlib.nullcontext() if verbose else without_log():
            yield
            gpus = importlib.import_module("tensorflow").config.list_physical_devices("GPU")
        if not gpus and _has_gpu():
            print(_NO_GPU, file=sys.stderr, flush=True)
    interrupts.check()  # some imports drop every exception, so that of a signal, too


def tensorflow() -> Any:
    """Starts TensorFlow if necessary, and returns the module. For code that needs TensorFlow only sometimes."""
    with starting_tensorflow():
        return importlib.import_module("tensorflow")


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Leaves the lines of TensorFlow's log out of whatever is written to standard error in the block.

    C++ code writes to the file descriptor 2 itself. So the block replaces this descriptor with a pipe to another
    process, which copies all other lines to the real standard error. The lines arrive even if this process aborts. If
    standard error is closed, or no process can be started, nothing is left out.
    """
    import subprocess

    end = f"{os.getpid()} {os.urandom(8).hex()}\n"
    with contextlib.ExitStack() as stack:
        try:
            # Keeps a copy of the real standard error, under a number from 3 on, which child processes do not inherit.
            stderr = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
            stack.callback(os.close, stderr)
            process = subprocess.Popen(  # noqa: S603 - this very Python
                [sys.executable or "", "-I", "-S", "-c", _FILTER, _LOGGED, end],
                stdin=subprocess.PIPE,
                stdout=stderr,
                start_new_session=True,  # so that Ctrl-C does not reach the filter process
            )
        except OSError:
            yield
            return
        stack.enter_context(process)
        try:
            _flush()
            os.dup2(process.stdin.fileno(), 2)  # type: ignore[union-attr]
            yield
        finally:
            _flush()
            with contextlib.suppress(OSError):  # somebody has killed the filter process
                os.write(2, end.encode())
            os.dup2(stderr, 2)


def _flush() -> None:
    """Writes out what Python has buffered for standard error.

    Ignores a closed standard error and a pipe without reader.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.flush()


def _has_gpu() -> bool:
    """Returns whether this machine has an NVIDIA GPU that the user has not hidden by CUDA_VISIBLE_DEVICES."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and any(map(glob.glob, _NVIDIA))
