"""Large libraries: imported without the garbage collector, and TensorFlow started without the log of its start.

TensorFlow, Beam and tf.Transform make hundreds of thousands of objects that live as long as the process. The collector
goes through them again and again while they are made, and whenever it runs later, and finds nothing.

TensorFlow's C++ libraries log some lines before they read any setting, and one for each thing that this machine lacks.
They say nothing where all goes well, and all there is to say where it does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import glob
import importlib
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from schemas import interrupts

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # TensorFlow reads it at its first log: 0 is everything, 2 errors, 3 fatal ones
_NVIDIA = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*")
_NO_GPU = (
    "note: this machine has an NVIDIA GPU, but TensorFlow lists none, so it computes on the CPU; its log is above. "
    "If that is meant, set CUDA_VISIBLE_DEVICES=-1"
)

# What TensorFlow and absl log, and the second line of what TensorFlow says about the CPU. A fatal error is none of it.
_LOGGED = re.compile(
    rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] |[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ )\S+:\d+\] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
    rb"|To enable the following instructions: .*, rebuild TensorFlow with the appropriate compiler flags\.$"
)

# The process that keeps what is written to standard error. It outlives an abort and a kill of the one that starts, and
# has a session of its own, where no Ctrl-C reaches it. It ends when it is told to, or when that process has ended, and
# not with the pipe, which children of that process may hold open. Told that the start succeeded it hands over what it
# keeps, else it prints it.
_KEEPER = """\
import os, select, sys

def give(to):
    for data in kept:
        while data:
            select.select([], [to], [])
            data = data[os.write(to, data):]

PIPE, WORD, SHOWN = 0, 1, 2
kept, sources, word = [], [PIPE, WORD], None
os.set_blocking(PIPE, False)
while word is None:
    ready = select.select(sources, [], [], 0.5)[0]
    if WORD in ready:
        word = os.read(WORD, 1)
    elif os.getppid() != int(sys.argv[1]):
        word = b""
    try:
        while PIPE in sources:
            kept.append(os.read(PIPE, 1 << 16))
            if not kept[-1]:
                sources.remove(PIPE)
    except BlockingIOError:
        pass
give(WORD if word else SHOWN)
"""

_starting = threading.RLock()
_started = False


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
    """TensorFlow is imported, and set up, in the block; its devices are found at the block's end.

    Standard error is held back meanwhile. If the start fails, by an exception, a signal or an abort, all of it is
    printed; else all but the lines of TensorFlow's log. Those are printed, too, if the machine has a GPU that
    TensorFlow does not find: a training on the CPU that nobody is told of is worse than some lines.

    Does nothing where it was started before.

    Args:
      verbose: hold nothing back, and let TensorFlow log more than errors.
      own_process: the process is this project's: Keras is the one that Estimator works with, and the processes that it
        starts log no more than it.
    """
    global _started  # noqa: PLW0603 - TensorFlow starts once in a process
    with _starting:
        if _started:
            yield
            return
        if own_process:
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Estimator's; else TensorFlow imports Keras 3, too
        asked = os.environ.get(LOG_LEVEL)
        # Errors matter where a GPU is not found. All else that TensorFlow logs as an error is raised as one, too, or is
        # none, such as that oneDNN leaves the operations of images to others.
        os.environ.setdefault(LOG_LEVEL, "0" if verbose else "2" if _has_gpu() else "3")
        try:
            with contextlib.nullcontext() if verbose else held_back():
                yield
                gpus = importlib.import_module("tensorflow").config.list_physical_devices("GPU")
                if not gpus and _has_gpu():
                    raise _Unsaid
        except _Unsaid:
            print(_NO_GPU, file=sys.stderr, flush=True)
        finally:
            if asked is None and not own_process:
                del os.environ[LOG_LEVEL]
        _started = True
    interrupts.check()  # some imports drop any exception


def tensorflow() -> Any:
    """TensorFlow, for what needs it now and then; started as above."""
    with starting_tensorflow():
        return importlib.import_module("tensorflow")


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """What is written to standard error in the block is printed at its end, without TensorFlow's log.

    Whatever else ends the block, all of it is printed. Where standard error is closed, or no other process can be
    started, nothing is held back.
    """
    with contextlib.ExitStack() as stack:
        try:
            keeper = _keeper(stack)
        except OSError:
            keeper = None
        if keeper is None:
            yield
            return
        stderr, pipe, word = keeper
        succeeded = False
        try:
            _flush()
            os.dup2(pipe, 2)
            yield
            succeeded = True
        finally:
            _flush()
            os.dup2(stderr, 2)
            kept = b""
            with contextlib.suppress(OSError):  # somebody has ended that process
                word.sendall(b"+" if succeeded else b"")
                word.shutdown(socket.SHUT_WR)  # closing it is not enough, if a child has it, too
                kept = b"".join(iter(lambda: word.recv(1 << 16), b""))
        lines = [line for line in kept.splitlines(keepends=True) if not _LOGGED.match(line)]
        with contextlib.suppress(OSError), open(2, "wb", closefd=False) as out:
            out.writelines(lines)


def _keeper(stack: contextlib.ExitStack) -> tuple[int, int, socket.socket]:
    """Starts the process that keeps what is written; the stack waits for its end.

    Returns:
      Standard error as it is, the pipe that the process reads, and the socket that it takes the word from.
    """
    import subprocess

    stderr = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
    stack.callback(os.close, stderr)
    with contextlib.ExitStack() as its_own:
        reading, writing = os.pipe()
        its_own.callback(os.close, reading)
        stack.callback(os.close, writing)
        word, its_word = socket.socketpair()
        its_own.enter_context(its_word)
        process = subprocess.Popen(  # noqa: S603 - this very Python
            [sys.executable or "", "-I", "-S", "-c", _KEEPER, str(os.getpid())],
            stdin=reading,
            stdout=its_word.fileno(),
            stderr=stderr,
            start_new_session=True,
        )
        stack.callback(process.wait)
        return stderr, writing, stack.enter_context(word)


def _flush() -> None:
    """What Python holds of standard error goes where it belongs; there may be none, or nobody who reads it."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.flush()


def _has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU that is not hidden on purpose."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and any(map(glob.glob, _NVIDIA))


class _Unsaid(Exception):
    """The start went on without a GPU."""
