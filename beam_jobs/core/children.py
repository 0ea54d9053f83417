"""Child processes that do steps of a local job's work beside it, and the parent, which helps them.

Python's lock lets threads gain little where most of the time is Python's and NumPy's. Whoever is free takes the next
step that is ready and that nobody has begun: a child, or the parent, where it would wait for a child. What a child
could not do, the parent does: so records, rejects, statistics and errors are those of a job without children.

Children know neither Beam nor TensorFlow, which take seconds to import and a third of a GB. Where a job is large
enough, some of them import both as soon as they find nothing else to do, and take steps that need them.

A child ends with its parent, however that ends: its standard input is closed then, and a thread of its own looks
whether its parent is still there.
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
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

from schemas import interrupts
from schemas.concurrency import available_memory, usable_cores
from schemas.errors import MillraceError
from schemas.spec.table import Schema

MAX_WORKERS = 8  # by default: beyond, more children would only wait for what the parent does alone
MIN_BYTES = 64 << 20  # of the input, by default: what takes a child as long as it takes to start
MAX_LOADING = 3  # import Beam and TensorFlow: more would cost more CPU time than they save of the job's
LIBRARIES_MIN_BYTES = 256 << 20  # of the input, for that
JOB_BYTES = 2000 << 20  # of memory, at its peak: what the parent takes, of 5,000 columns; of ten it is 1,300
CHILD_BYTES = 600 << 20  # a child: of 5,000 columns 585, of ten 360
LIBRARIES_BYTES = 600 << 20  # more, a child with the libraries
_LOOK_SECONDS = 0.2
_REMEDY = "Nothing was committed. Give --workers 1, with which the job does everything by itself, or more memory."

_POOL = (
    "ARROW_DEFAULT_MEMORY_POOL"  # Arrow's own gives memory back, and takes it again, batch by batch: 12 % of the time
)
_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.core.children import work_as_told; work_as_told()"
_running: dict[str, Children] = {}  # by folder

T = TypeVar("T")
_Answer = tuple[object] | None  # what a step has returned; None: it has failed


def workers_by_default(size: int) -> int:
    """How many processes work on an input of `size` bytes, the parent among them."""
    if size < MIN_BYTES:
        return 1
    return min(usable_cores(), MAX_WORKERS, 1 + max(0, available_memory() - JOB_BYTES) // CHILD_BYTES)


def lacking_memory(workers: int) -> str | None:
    """What to say if so many processes may take more memory than there is."""
    wanted, found = JOB_BYTES + (workers - 1) * CHILD_BYTES, available_memory()
    if workers == 1 or wanted <= found:
        return None
    return f"they may take {wanted / 1e9:.1f} GB of memory, and {found / 1e9:.1f} GB are available; give fewer"


def with_libraries(children: int, size: int) -> int:
    """How many of the children that work on an input of `size` bytes import Beam and TensorFlow."""
    if size < LIBRARIES_MIN_BYTES:
        return 0
    spare = available_memory() - JOB_BYTES - children * CHILD_BYTES
    return max(0, min(children - 1, MAX_LOADING, spare // LIBRARIES_BYTES))


@dataclasses.dataclass(frozen=True)
class Step(abc.ABC):
    """A part of the work, which any process can do.

    Attributes:
      path: its name, and the file that it makes, if it makes one; no two steps of a job have the same.
    """

    path: str
    needs_libraries: ClassVar[bool] = False  # Beam and TensorFlow

    @property
    def ready(self) -> bool:
        """Whether all that it reads is there."""
        return True

    @abc.abstractmethod
    def run(self, schema: Schema) -> object:
        """Does it, and returns what the parent is to know. Calls `schemas.interrupts.check` now and then."""


class Finding(Step, Generic[T]):
    """A step that finds something."""

    @abc.abstractmethod
    def find(self, schema: Schema) -> T:
        """Finds it here."""

    def run(self, schema: Schema) -> object:
        return self.find(schema)

    def read(self, answer: Any) -> T:
        """What a child has found.

        Args:
          answer: what `run` returned there.

        Raises:
          OSError: it left none.
        """
        found: T = answer
        return found


class Children:
    """Children that work on steps until they are closed. Without any, the parent does what it waits for.

    Args:
      schema: what all steps are given.
      steps: what can be done from the beginning; `add` adds more.
      folder: the local folder of the job that they work for.
      children: how many.
      loading: how many of them import the libraries.
      load: imports them, in a child.
    """

    def __init__(
        self,
        schema: Schema,
        steps: Iterable[Step],
        folder: str,
        *,
        children: int,
        loading: int = 0,
        load: Callable[[], None] | None = None,
    ) -> None:
        self._schema = schema
        self._folder = folder
        self._load = None if load is None else _Load("", load)
        self.loading = loading
        self.loaded = 0  # how many have imported the libraries
        self._changed = threading.Condition()
        self._todo = {step.path: step for step in steps}
        self._busy: set[str] = set()
        self._answers: dict[str, object] = {}  # of children, by step
        self._failure: str | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._children: list[subprocess.Popen[bytes]] = []
        _running[folder] = self
        try:
            for number in range(children):
                self._start(loads=load is not None and number < loading)
        except BaseException:
            self.close()
            raise

    def _start(self, *, loads: bool) -> None:
        """Starts a child, if a process and memory are left; else whoever needs the files makes them."""
        command, pipe = [sys.executable, "-c", _PROGRAM.format(path=sys.path)], subprocess.PIPE
        env = {_POOL: "system", **os.environ, "CUDA_VISIBLE_DEVICES": "-1"}  # no child needs a GPU
        with contextlib.suppress(OSError):  # in a session of its own, since Ctrl-C is for the parent alone
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, start_new_session=True)  # noqa: S603
            self._children.append(child)
            self._threads.append(threading.Thread(target=self._feed, args=(child, loads), name="child", daemon=True))
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

    def done(self, paths: Iterable[str]) -> bool:
        """Whether the steps that make some files have ended."""
        with self._changed:
            return self._busy.union(self._todo).isdisjoint(paths)

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
            answer = None
            try:
                answer = _tried(step, self._schema)
            finally:
                self._done(step.path, answer)

    def found(self, step: Finding[T], *helping: type) -> T:
        """What a step finds, in a child or here; while a child works on it, other steps of some kinds are done.

        Raises:
          MillraceError: a child was killed, or what the step raises.
        """
        if not self.take(step.path):
            self.wait_for(step.path, *helping)
            with contextlib.suppress(KeyError, OSError):  # a child met an error, or a full disk
                return step.read(self._answers.pop(step.path))
        return step.find(self._schema)

    def _claim(self, *kinds: type, loaded: bool = True) -> Step | None:
        """The next step of some kinds, or of any, that is ready, which is the caller's now; None if there is none."""
        for path, step in self._todo.items():
            if (not kinds or isinstance(step, kinds)) and (loaded or not step.needs_libraries) and step.ready:
                self._busy.add(path)
                return self._todo.pop(path)
        return None

    def _done(self, path: str, answer: _Answer) -> None:
        with self._changed:
            if answer is not None:
                (self._answers[path],) = answer
            self._busy.discard(path)
            self._changed.notify_all()

    def _next(self, child: subprocess.Popen[bytes], *, loads: bool, loaded: bool) -> Step | None:
        """What a child does next, when there is something; None when this is closed.

        Raises:
          BrokenPipeError: the child has ended.
        """
        with self._changed:
            while not self._closed:
                step = self._claim(loaded=loaded) or (self._load if loads and not loaded else None)
                if step is not None:
                    return step
                if child.poll() is not None:
                    raise BrokenPipeError
                self._changed.wait(_LOOK_SECONDS)
        return None

    def _feed(self, child: subprocess.Popen[bytes], loads: bool) -> None:
        """Hands steps to a child, one at a time, until this is closed or the child has ended."""
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        assert child.stdout is not None  # noqa: S101
        ended = loaded = False
        failure = ""
        try:
            _send(child.stdin, (self._schema, os.getpid()))
            while not ended:
                step = self._next(child, loads=loads, loaded=loaded)
                if step is None:
                    break
                _send(child.stdin, step)
                try:
                    answer: _Answer = pickle.load(child.stdout)  # noqa: S301 - of a process that this one has started
                except (EOFError, pickle.UnpicklingError):
                    ended = True
                    continue
                if isinstance(step, _Load):
                    loads = loaded = answer is not None
                    with self._changed:
                        self.loaded += loaded
                self._done(step.path, answer)
        except BrokenPipeError:
            ended = True
        except Exception as error:
            ended, failure = True, f"process {child.pid}, which worked for this job: {type(error).__name__}: {error}"
            child.kill()
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        code = child.wait()
        child.stdout.close()
        with self._changed:
            if ended and not self._closed:
                self._failure = f"{failure or _failure(child.pid, code)}. {_REMEDY}"
            self._changed.notify_all()


@dataclasses.dataclass(frozen=True)
class _Load(Step):
    """The step that imports the libraries, which a child takes when there is no other."""

    load: Callable[[], None]

    def run(self, schema: Schema) -> None:
        """Silently: this process was asked for nothing, and may be killed meanwhile, which the log would tell of."""
        with open(os.devnull, "wb") as nowhere:
            stderr = os.dup(2)
            os.dup2(nowhere.fileno(), 2)
            try:
                self.load()
            finally:
                os.dup2(stderr, 2)
                os.close(stderr)


def running(folder: str) -> Children | None:
    """The children that this process has started for the job of a folder; None if there are none."""
    return _running.get(folder)


def _failure(pid: int, code: int) -> str:
    how = f"ended with exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-code).name}"
    why = ", probably because memory ran out" if code == -signal.SIGKILL else ""
    return f"process {pid}, which worked for this job, {how}{why}"


def _tried(step: Step, schema: Schema) -> _Answer:
    with contextlib.suppress(Exception):  # whoever needs it meets the same, and says so
        return (step.run(schema),)
    return None


def _send(pipe: Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def work_as_told() -> None:
    """A child's work: runs each step that standard input names, and answers with what it returned."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where libraries may print
    with contextlib.suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has ended, or ends this
        schema, parent = _received()
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
        while True:
            answer = _tried(_received(), schema)
            try:
                told = pickle.dumps(answer)
            except Exception:
                told = pickle.dumps(None)
            answers.write(told)
            answers.flush()


def _end_with(parent: int) -> None:
    """Ends this process, whatever it does, when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(0)


def _received() -> Any:
    return pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
