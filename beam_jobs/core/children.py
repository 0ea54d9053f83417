"""Child processes that decode and profile rows for a local job, beside the process that runs its pipeline.

Threads do not help here: decoding holds the GIL. Whoever is free takes the next step that is ready and that nobody has
begun: a child, or the parent while it waits for a child. The parent does whatever a child could not do, so records,
rejects, statistics and errors are those of a job without children.

Children import neither Beam nor TensorFlow, which would take each of them seconds and a third of a GB.

A child ends with its parent, however that ends: its standard input is closed then, and a thread checks whether the
parent is still there.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from schemas import interrupts
from schemas.concurrency import available_memory, usable_cores
from schemas.errors import MillraceError
from schemas.spec.table import Schema

MAX_WORKERS = 8  # by default: the parent alone could not use the work of more
MIN_BYTES = 64 << 20  # of the input, by default: a child takes about as long to start as to decode this
PARENT_BYTES = 2000 << 20  # peak memory of the parent with 5,000 columns; with ten it is 1,300 MB
CHILD_BYTES = 600 << 20  # peak memory of a child: with 5,000 columns 585 MB, with ten 360
_POLL_SECONDS = 0.2
_REMEDY = "Nothing was committed. Give --workers 1, with which the job does everything by itself, or more memory."

# Arrow's own memory pool returns memory to the system and takes it again batch by batch, which costs 12 % of the time.
_MEMORY_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.core.children import serve_parent; serve_parent()"

# Beam pickles DoFns, so they cannot hold the children themselves: they find them here, by the folder of their job.
_running: dict[str, Children] = {}


def workers_by_default(size: int) -> int:
    """The number of processes that work on an input of `size` bytes, including the parent."""
    if size < MIN_BYTES:
        return 1
    return min(usable_cores(), MAX_WORKERS, 1 + max(0, available_memory() - PARENT_BYTES) // CHILD_BYTES)


def memory_warning(workers: int) -> str | None:
    """A warning if so many processes may take more memory than is available, else None."""
    needed, available = PARENT_BYTES + (workers - 1) * CHILD_BYTES, available_memory()
    if workers == 1 or needed <= available:
        return None
    return f"they may take {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are available; give fewer"


@dataclasses.dataclass(frozen=True)
class Step(abc.ABC):
    """A piece of work that any process can do.

    Attributes:
      path: the file that it writes, which also names it: no two steps of a job write the same file.
    """

    path: str

    @property
    def ready(self) -> bool:
        """Whether everything that it reads is there."""
        return True

    @abc.abstractmethod
    def run(self, schema: Schema) -> None:
        """Writes the file. Calls `schemas.interrupts.check` after each batch."""


class Children:
    """Child processes that work on steps until they are closed. Without any, the parent does what it waits for.

    Args:
      schema: the schema of the rows, which every step is run with.
      steps: the first steps; `add` adds more.
      folder: the local folder of the job that they work for.
      children: the number of processes.
    """

    def __init__(self, schema: Schema, steps: Iterable[Step], folder: str, *, children: int) -> None:
        self._schema = schema
        self._folder = folder
        self._changed = threading.Condition()
        self._todo = {step.path: step for step in steps}
        self._busy: set[str] = set()  # the paths of the steps that somebody works on
        self._failure: str | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._children: list[subprocess.Popen[bytes]] = []
        _running[folder] = self
        try:
            for _ in range(children):
                self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Starts a child. If the system refuses another process, the others and the parent do its work."""
        command, pipe = [sys.executable, "-c", _PROGRAM.format(path=sys.path)], subprocess.PIPE
        env = {_MEMORY_POOL: "system", **os.environ, "CUDA_VISIBLE_DEVICES": "-1"}  # no child needs a GPU
        with contextlib.suppress(OSError):  # in a session of its own, since Ctrl-C is for the parent alone
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, start_new_session=True)  # noqa: S603
            self._children.append(child)
            self._threads.append(threading.Thread(target=self._feed, args=(child,), name="child", daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Ends the children, and returns when they have ended."""
        _running.pop(self._folder, None)
        with self._changed:
            self._closed = True
            self._todo.clear()
            self._changed.notify_all()
        for child in self._children:
            child.kill()
        for thread in self._threads:
            thread.join()

    @property
    def pids(self) -> list[int]:
        """The process ids of the children."""
        return [child.pid for child in self._children]

    def add(self, steps: Iterable[Step]) -> None:
        """Adds steps, which are begun after those before them."""
        with self._changed:
            self._todo.update((step.path, step) for step in steps)
            self._changed.notify_all()

    def withdraw(self, path: str) -> None:
        """Takes back the step that writes a file, so that nobody begins it any more; it may have been begun."""
        with self._changed:
            self._todo.pop(path, None)

    def wait_for(self, path: str, *helping: type) -> None:
        """Returns when nobody works on the step that writes a file, and does other steps of some types meanwhile.

        Raises:
          MillraceError: a child was killed.
        """
        while True:
            interrupts.check()
            with self._changed:
                if self._failure is not None:
                    raise MillraceError(self._failure)
                if path not in self._busy:
                    return
                step = self._begin(*helping)
                if step is None:
                    self._changed.wait(_POLL_SECONDS)
                    continue
            try:
                _try(step, self._schema)
            finally:
                self._end(step)

    def _begin(self, *types: type) -> Step | None:
        """Begins the next step, of some types or of any, that is ready; None if there is none."""
        for path, step in self._todo.items():
            if (not types or isinstance(step, types)) and step.ready:
                self._busy.add(path)
                return self._todo.pop(path)
        return None

    def _end(self, step: Step) -> None:
        with self._changed:
            self._busy.discard(step.path)
            self._changed.notify_all()

    def _next(self, child: subprocess.Popen[bytes]) -> Step | None:
        """Waits for a step that a child can do; None when this is closed.

        Raises:
          BrokenPipeError: the child has ended.
        """
        with self._changed:
            while not self._closed:
                step = self._begin()
                if step is not None:
                    return step
                if child.poll() is not None:
                    raise BrokenPipeError
                self._changed.wait(_POLL_SECONDS)
        return None

    def _feed(self, child: subprocess.Popen[bytes]) -> None:
        """Hands steps to a child, one at a time, until this is closed or the child has ended."""
        steps, answers = child.stdin, child.stdout
        if steps is None or answers is None:
            raise ValueError(f"process {child.pid} was started without pipes")
        lost: Exception | None = None
        try:
            _send(steps, (self._schema, os.getpid()))
            while (step := self._next(child)) is not None:
                _send(steps, step)
                if not answers.read(1):
                    raise BrokenPipeError
                self._end(step)
        except BrokenPipeError as error:
            lost = error
        except Exception as error:
            lost = error
            child.kill()
        with contextlib.suppress(BrokenPipeError):
            steps.close()
        exit_code = child.wait()
        answers.close()
        with self._changed:
            if lost is not None and not self._closed:
                ended = isinstance(lost, BrokenPipeError)
                how = f" {_how_ended(exit_code)}" if ended else f" failed: {type(lost).__name__}: {lost}"
                self._failure = f"process {child.pid}, which worked for this job,{how}. {_REMEDY}"
            self._changed.notify_all()


def running(folder: str) -> Children | None:
    """The children that this process has started for the job of a folder; None if there are none."""
    return _running.get(folder)


def _how_ended(code: int) -> str:
    """How a process ended, as a clause about it: by its exit code."""
    how = f"ended with exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-code).name}"
    why = ", probably because memory ran out" if code == -signal.SIGKILL else ""
    return f"{how}{why}"


def _try(step: Step, schema: Schema) -> None:
    with contextlib.suppress(Exception):  # whoever needs the file does the step again, and reports the same error
        step.run(schema)


def _send(pipe: Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def serve_parent() -> None:
    """Runs, in a child, each step that standard input brings, and answers each with one byte."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where libraries may print
    with contextlib.suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has ended, or ends this
        schema, parent = _receive()
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
        while True:
            _try(_receive(), schema)
            answers.write(b".")
            answers.flush()


def _end_with(parent: int) -> None:
    """Ends this process, whatever it does, when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(0)


def _receive() -> Any:
    return pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
