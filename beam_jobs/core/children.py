"""Child processes that do steps of a local job's work beside it, and the parent, which helps them.

Python's lock lets threads gain little where most of the time is Python's and NumPy's. A step reads files and makes one;
it needs neither Beam nor TensorFlow. Whoever is free takes the next step that is ready and that nobody has begun: a
child, or the parent, where it would wait for a child. What a child could not do, the parent does: so records, rejects,
statistics and errors are those of a job without children.

A child ends with its parent, however that ends: its standard input is closed then, and a thread of its own looks
whether its parent is still there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from schemas import interrupts
from schemas.concurrency import usable_cores
from schemas.errors import MillraceError
from schemas.spec.table import Schema

MAX_WORKERS = 8  # by default: beyond, more children would only wait for what the parent does alone
MIN_BYTES = 64 << 20  # of the input, by default: what takes a child as long as it takes to start
CHILD_BYTES = 400 << 20  # of memory, at its peak
_LOOK_SECONDS = 0.2

_POOL = (
    "ARROW_DEFAULT_MEMORY_POOL"  # Arrow's own gives memory back, and takes it again, batch by batch: 12 % of the time
)
_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.core.children import work_as_told; work_as_told()"
_running: dict[str, Children] = {}  # by folder

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def workers_by_default(size: int) -> int:
    """How many processes work on an input of `size` bytes, the parent among them."""
    return 1 if size < MIN_BYTES else min(usable_cores(), MAX_WORKERS)


class Step(Protocol):
    """A part of the work, which any process can do."""

    @property
    def path(self) -> str:
        """The file that it makes; no two steps of a job have the same."""

    @property
    def ready(self) -> bool:
        """Whether all that it reads is there."""

    def run(self, schema: Schema) -> None:
        """Makes the file. Calls `schemas.interrupts.check` now and then."""


class Finding(Step, Protocol[T_co]):
    """A step that finds something, and whose file holds that."""

    def find(self, schema: Schema) -> T_co:
        """The same without a file."""

    def read(self) -> T_co:
        """What is in the file. Raises OSError if there is none."""


class Children:
    """Children that work on steps until they are closed. Without any, the parent does what it waits for.

    Args:
      schema: what all steps are given.
      steps: what can be done from the beginning; `add` adds more.
      folder: the local folder of the job that they work for.
      children: how many.
    """

    def __init__(self, schema: Schema, steps: Iterable[Step], folder: str, *, children: int) -> None:
        self._schema = schema
        self._folder = folder
        self._changed = threading.Condition()
        self._todo = {step.path: step for step in steps}
        self._busy: set[str] = set()
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
        """Starts a child, if a process and memory are left; else whoever needs the files makes them."""
        command, pipe = [sys.executable, "-c", _PROGRAM.format(path=sys.path)], subprocess.PIPE
        env = {_POOL: "system", **os.environ}
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
        """The processes."""
        return [child.pid for child in self._children]

    def add(self, steps: Iterable[Step]) -> None:
        """Adds steps, which are taken after those before them."""
        with self._changed:
            self._todo.update((step.path, step) for step in steps)
            self._changed.notify_all()

    def take(self, path: str) -> bool:
        """Whether nobody has begun the step that makes a file: nobody does then, and it is the caller's."""
        with self._changed:
            return self._todo.pop(path, None) is not None

    def wait_for(self, path: str, *helping: type) -> None:
        """Returns when no child works on the step that makes a file, and does other steps of some kinds meanwhile.

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
                step = self._claim(*helping)
                if step is None:
                    self._changed.wait(_LOOK_SECONDS)
                    continue
            try:
                with contextlib.suppress(Exception):  # whoever needs it meets the same, and says so
                    step.run(self._schema)
            finally:
                self._done(step.path)

    def found(self, step: Finding[T], *helping: type) -> T:
        """What a step finds, in a child or here; while a child works on it, other steps of some kinds are done.

        Raises:
          MillraceError: a child was killed, or what the step raises.
        """
        if not self.take(step.path):
            self.wait_for(step.path, *helping)
            with contextlib.suppress(OSError):  # a child met an error, or a full disk
                return step.read()
        return step.find(self._schema)

    def _claim(self, *kinds: type) -> Step | None:
        """The next step of some kinds, or of any, that is ready, which is the caller's now; None if there is none."""
        for path, step in self._todo.items():
            if (not kinds or isinstance(step, kinds)) and step.ready:
                self._busy.add(path)
                return self._todo.pop(path)
        return None

    def _done(self, path: str) -> None:
        with self._changed:
            self._busy.discard(path)
            self._changed.notify_all()

    def _next(self) -> Step | None:
        """What a child does next, when there is something; None when this is closed."""
        with self._changed:
            while not self._closed:
                step = self._claim()
                if step is not None:
                    return step
                self._changed.wait(_LOOK_SECONDS)
        return None

    def _feed(self, child: subprocess.Popen[bytes]) -> None:
        """Hands steps to a child, one at a time, until this is closed or the child has ended."""
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        assert child.stdout is not None  # noqa: S101
        ended = False
        try:
            _send(child.stdin, (self._schema, os.getpid()))
            while not ended:
                step = self._next()
                if step is None:
                    break
                _send(child.stdin, step)
                ended = not child.stdout.readline()
                if not ended:
                    self._done(step.path)
        except BrokenPipeError:
            ended = True
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        code = child.wait()
        child.stdout.close()
        with self._changed:
            if ended and not self._closed:
                self._failure = _failure(child.pid, code)
            self._changed.notify_all()


def running(folder: str) -> Children | None:
    """The children that this process has started for the job of a folder; None if there are none."""
    return _running.get(folder)


def _failure(pid: int, code: int) -> str:
    how = f"ended with exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-code).name}"
    why = ", probably because memory ran out" if code == -signal.SIGKILL else ""
    return (
        f"process {pid}, which worked for this job, {how}{why}. Nothing was committed. Give --workers 1, with which "
        "the job does everything by itself, or more memory."
    )


def _send(pipe: Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def work_as_told() -> None:
    """A child's work: runs each step that standard input names, and answers with a line when it has ended."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has ended, or ends this
        schema, parent = _received()
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
        while True:
            step = _received()
            with contextlib.suppress(Exception):  # the parent, which does this then, meets the same and says so
                step.run(schema)
            os.write(sys.stdout.fileno(), b"\n")


def _end_with(parent: int) -> None:
    """Ends this process, whatever it does, when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(0)


def _received() -> Any:
    return pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
