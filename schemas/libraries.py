"""Imports large libraries in half the time, and starts TensorFlow without the log of its start.

TensorFlow, Beam and tf.Transform make hundreds of thousands of objects that live as long as the process, through which
Python's garbage collector goes again and again: without it, importing TensorFlow takes 1.5 s of CPU instead of 2.8.

TensorFlow's C++ libraries log some lines before they read any setting, and one for each thing that the machine lacks.
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

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # TensorFlow reads it at its first log: 0 is everything, 2 errors, 3 fatal ones
_NVIDIA = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*")
_NO_GPU = (
    "note: this machine has an NVIDIA GPU, but TensorFlow lists none, so it computes on the CPU; with --verbose its "
    "log says why. If that is meant, set CUDA_VISIBLE_DEVICES=-1"
)

# What TensorFlow and absl log, and the second line of what TensorFlow says about the CPU. A fatal error is none of it.
_LOGGED = (
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] |[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ )\S+:\d+\] "
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
    r"|To enable the following instructions: .*, rebuild TensorFlow with the appropriate compiler flags\.$"
)

# The process that passes on what is written to standard error, until a line ends with the text that it was given: not
# until the pipe ends, which children of this process may hold open.
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
    """Imports modules with no collection meanwhile, and keeps what exists then out of all later collections.

    Does nothing where they are imported already.
    """
    if all(name in sys.modules for name in names):
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def starting_tensorflow(*, verbose: bool = False, own_process: bool = True) -> Iterator[None]:
    """Starts TensorFlow, which is imported and set up in the block; its devices are found at the block's end.

    Of what is written to standard error meanwhile, the lines of TensorFlow's log are left out. If the machine has a GPU
    that TensorFlow does not find, a note says so. Does nothing where TensorFlow was imported before.

    Args:
      verbose: leave nothing out, and let TensorFlow log more than errors.
      own_process: the process is this project's: Keras is the one that Estimator works with, and the processes that it
        starts log no more than it.
    """
    with _starting, contextlib.ExitStack() as stack:
        if "tensorflow" in sys.modules:
            yield
            return
        if own_process:
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Estimator's; else TensorFlow imports Keras 3, too
        # What TensorFlow logs as an error is raised as one, too, or is none, such as that oneDNN leaves the operations
        # of images to others.
        if LOG_LEVEL not in os.environ:
            os.environ[LOG_LEVEL] = "0" if verbose else "3"
            if not own_process:
                stack.callback(os.environ.pop, LOG_LEVEL)
        with contextlib.nullcontext() if verbose else without_log():
            yield
            gpus = importlib.import_module("tensorflow").config.list_physical_devices("GPU")
        if not gpus and _has_gpu():
            print(_NO_GPU, file=sys.stderr, flush=True)
    interrupts.check()  # some imports drop any exception


def tensorflow() -> Any:
    """Starts TensorFlow and returns it, for what needs it now and then."""
    with starting_tensorflow():
        return importlib.import_module("tensorflow")


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Prints what is written to standard error in the block without TensorFlow's log, even before an abort.

    Where standard error is closed, or no other process can be started, all of it is printed.
    """
    import subprocess

    end = f"{os.getpid()} {os.urandom(8).hex()}\n"
    with contextlib.ExitStack() as stack:
        try:
            stderr = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
            stack.callback(os.close, stderr)
            process = subprocess.Popen(  # noqa: S603 - this very Python
                [sys.executable or "", "-I", "-S", "-c", _FILTER, _LOGGED, end],
                stdin=subprocess.PIPE,
                stdout=stderr,
                start_new_session=True,  # where no Ctrl-C reaches it
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
            with contextlib.suppress(OSError):  # somebody has ended that process
                os.write(2, end.encode())
            os.dup2(stderr, 2)


def _flush() -> None:
    """Writes what Python has buffered for standard error, which may be closed, or read by nobody."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.flush()


def _has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU that is not hidden on purpose."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and any(map(glob.glob, _NVIDIA))
