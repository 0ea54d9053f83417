"""Child processes that work for a local job on the groups of ranges of its input, and the parent, which helps them.

Parsing CSV holds Python's lock for most of its time, so that threads gain little. There are two steps, both without
Beam and TensorFlow. Groups are decoded into the cache; that begins while the parent still imports TensorFlow. Then
statistics and traces of leakage are collected of units, some groups each, from the cache. Whoever is free takes the
next step that nobody has begun: a child, or the parent, where it would wait for a child. What a child could not do,
the parent does: so records, rejects, statistics and errors are those of a job without children.

A child ends with its parent, however that ends: its standard input is closed then, and before each batch it looks
whether its parent is still there.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.rows.groups import (
    Digested,
    Group,
    Place,
    Unit,
    cache_path,
    decode,
    observe,
    unit_starts,
    write_through,
)
from schemas import interrupts, storage
from schemas.concurrency import usable_cores
from schemas.errors import MillraceError
from schemas.spec.table import Schema

if TYPE_CHECKING:
    from schemas.profile.profiles import Profiles

MAX_WORKERS = 4  # by default: children do about three quarters of a job's work, so more would wait for their parent
MIN_BYTES = 64 << 20  # of the input, by default: what takes a child as long as it takes to start
CHILD_BYTES = 400 << 20  # of memory, at its peak
_LOOK_SECONDS = 0.2

_POOL = (
    "ARROW_DEFAULT_MEMORY_POOL"  # Arrow's own gives memory back, and takes it again, batch by batch: 12 % of the time
)
_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.rows.children import work_as_told; work_as_told()"
_running: dict[str, Children] = {}  # by folder


def workers_by_default(size: int) -> int:
    """How many processes work on an input of `size` bytes, the parent among them."""
    return 1 if size < MIN_BYTES else min(usable_cores(), MAX_WORKERS)


@dataclasses.dataclass(frozen=True)
class Collected:
    """What is collected of accepted rows."""

    statistics: bool
    leakage: bool

    def nothing(self, schema: Schema) -> Profiles:
        """Profiles of no row yet."""
        from schemas.profile.columns import columns_of
        from schemas.profile.leakage import watched_rows
        from schemas.profile.profiles import Profiles

        return Profiles(columns_of(schema) if self.statistics else None, watched_rows(schema) if self.leakage else None)


@dataclasses.dataclass(frozen=True)
class Decode:
    """The step that caches a group."""

    group: Group
    path: str  # of the cache file

    @property
    def ready(self) -> bool:
        return True

    def run(self, schema: Schema) -> Iterator[None]:
        """Yields after each batch."""
        digested: Digested = []
        for _ in write_through(self.path, decode(self.group, schema, digested), digested):
            yield


@dataclasses.dataclass(frozen=True)
class Observe:
    """The step that collects the profiles of a unit, but for some of its rows.

    Attributes:
      unit: the groups.
      folder: of the cache.
      path: of the profiles.
      collected: what is collected.
      without: the offsets of rows that the transform has rejected, by the key of their file.
    """

    unit: Unit
    folder: str
    path: str
    collected: Collected
    without: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether all groups are cached."""
        return all(os.path.exists(cache_path(self.folder, group)) for group in self.unit)

    def observe(self, schema: Schema, into: Profiles) -> Iterator[None]:
        """Adds to profiles; yields after each batch."""
        return observe(self.unit, schema, self.folder, self.without, into)

    def run(self, schema: Schema) -> Iterator[None]:
        """Yields after each batch."""
        found = self.collected.nothing(schema)
        yield from self.observe(schema, found)
        found.write(self.path)


Step = Decode | Observe


class Children:
    """Children that work on groups, until all is done or it is closed.

    Args:
      schema: the schema of the files.
      groups: what is decoded. A compressed file, or another one that cannot be cut, is left to the parent.
      folder: the local folder of the cache.
      children: how many.
      units: the groups by unit.
      collected: what is collected of units; None: nothing.
    """

    def __init__(
        self,
        schema: Schema,
        groups: Sequence[Group],
        folder: str,
        *,
        children: int,
        units: Sequence[Unit] = (),
        collected: Collected | None = None,
    ) -> None:
        self._schema = schema
        self._folder = folder
        self._changed = threading.Condition()
        steps: list[Step] = [Decode(group, cache_path(folder, group)) for group in groups if _can_be_decoded(group)]
        self._units = [
            Observe(unit, folder, os.path.join(folder, f"observed-{number}"), collected)
            for number, unit in enumerate(units)
            if collected is not None
        ]
        children = min(children, len(steps))
        self._todo = {step.path: step for step in (*steps, *self._units)}
        self._more = bool(self._units)  # whether units may have to be observed again
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
        """Starts a child, if a process and memory are left; else whoever needs the groups decodes them."""
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

    @property
    def observes(self) -> bool:
        """Whether units are observed here, and not in the pipeline."""
        return bool(self._children and self._units)

    def wait_for(self, path: str) -> None:
        """Returns when no child decodes a group, and none will: it is cached by then, or the caller's to decode.

        Raises:
          MillraceError: a child was killed.
        """
        self._take(path)
        self._until_done(path, Decode)

    def profiles(self, rejected: Iterable[Place]) -> Profiles | None:
        """The profiles of all units, merged in their order; None if there was no row.

        Args:
          rejected: the rows that the transform has rejected.

        Raises:
          MillraceError: a child was killed, or the input cannot be read.
        """
        from schemas.profile.profiles import Profiles

        steps = list(self._units)
        starts = unit_starts([step.unit for step in steps])
        without: dict[int, dict[int, list[int]]] = {}
        for key, offset in rejected:
            number = bisect.bisect(starts, (key, offset)) - 1
            without.setdefault(number, {}).setdefault(key, []).append(offset)
        with self._changed:
            for number, places in without.items():  # observed anew, whatever was found with these rows
                step = steps[number]
                self._todo.pop(step.path, None)
                steps[number] = again = dataclasses.replace(step, path=f"{step.path}-again", without=places)
                self._todo[again.path] = again
            self._changed.notify_all()
        total: Profiles | None = None
        for step in steps:
            total = Profiles.joined(total, self._observed(step))
        with self._changed:
            self._more = False
            self._changed.notify_all()
        return total

    def _observed(self, step: Observe) -> Profiles:
        """The profiles of a unit, from a child or from here."""
        from schemas.profile.profiles import Profiles

        if self._take(step.path) is None:
            self._until_done(step.path, Observe)
            with contextlib.suppress(OSError):  # a child met an error, or a full disk
                found = Profiles.read(step.path)
                os.remove(step.path)
                return found
        found = step.collected.nothing(self._schema)
        for _ in step.observe(self._schema, found):
            interrupts.check()
        return found

    def _take(self, path: str) -> Step | None:
        """A step, which is the caller's from now on; None if it was begun before."""
        with self._changed:
            return self._todo.pop(path, None)

    def _claim(self, *kinds: type) -> Step | None:
        """The next step of one of these kinds that can be begun, which is the caller's now; None if there is none."""
        for path, step in self._todo.items():
            if isinstance(step, kinds) and step.ready:
                self._busy.add(path)
                return self._todo.pop(path)
        return None

    def _done(self, path: str) -> None:
        with self._changed:
            self._busy.discard(path)
            self._changed.notify_all()

    def _until_done(self, path: str, kind: type) -> None:
        """Works on other steps of a kind while a step is busy. Raises MillraceError if a child was killed."""
        while True:
            interrupts.check()
            with self._changed:
                if self._failure is not None:
                    raise MillraceError(self._failure)
                if path not in self._busy:
                    return
                step = self._claim(kind)
                if step is None:
                    self._changed.wait(_LOOK_SECONDS)
                    continue
            try:
                with contextlib.suppress(Exception):  # whoever needs it meets the same, and says so
                    for _ in step.run(self._schema):
                        interrupts.check()
            finally:
                self._done(step.path)

    def _next(self) -> Step | None:
        """What a child does next, when there is something; None if nothing is left."""
        with self._changed:
            while not self._closed and (self._todo or self._more):
                step = self._claim(Decode, Observe)
                if step is not None:
                    return step
                self._changed.wait(_LOOK_SECONDS)
        return None

    def _feed(self, child: subprocess.Popen[bytes]) -> None:
        """Hands steps to a child, one at a time, until none is left or the child has ended."""
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


def wait_for(folder: str, group: Group) -> None:
    """Waits for a group that is being decoded into a folder, if there are children that do so: `Children.wait_for`."""
    if folder in _running:
        _running[folder].wait_for(cache_path(folder, group))


def profiles(
    schema: Schema, folder: str, units: Sequence[Unit], collected: Collected, rejected: Iterable[Place]
) -> Profiles | None:
    """The profiles of units whose groups are cached in a folder, by its children if they are this process's."""
    if folder in _running:
        return _running[folder].profiles(rejected)
    with contextlib.closing(Children(schema, (), folder, children=0, units=units, collected=collected)) as alone:
        return alone.profiles(rejected)


def _can_be_decoded(group: Group) -> bool:
    return all(part.end is not None and storage.is_local(part.file.path) for part in group)


def _failure(pid: int, code: int) -> str:
    how = f"ended with exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-code).name}"
    why = ", probably because memory ran out" if code == -signal.SIGKILL else ""
    return (
        f"process {pid}, which read input for this job, {how}{why}. Nothing was committed. Give --workers 1, with "
        "which the job reads all input by itself, or more memory."
    )


def _send(pipe: Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def work_as_told() -> None:
    """A child's work: runs each step that standard input names, and answers with a line when it has ended."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has ended, or ends this
        schema, parent = _received()
        while True:
            step = _received()
            with contextlib.suppress(Exception):  # the parent, which does this then, meets the same and says so
                for _ in step.run(schema):
                    if os.getppid() != parent:
                        return
            os.write(sys.stdout.fileno(), b"\n")


def _received() -> Any:
    return pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
