"""Child processes that decode and profile rows for a local job, beside the process that runs its pipeline.

A step writes one file: `Decode` the cache of a group, which both reads of the job share, and `Observe` the profiles
(statistics, and what the leakage guard compares) of a unit. Whoever is free takes the next step that is ready: a child,
or the parent while it waits for a child. The parent does whatever a child could not do, so records, rejects, statistics
and errors are those of a job without children. Threads do not help here: decoding holds the GIL.

Children import neither Beam nor TensorFlow, which would take each of them seconds and a third of a GB. They decode
while the parent still imports these. A child ends when its parent has closed its pipe, or has ended.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from beam_jobs.rows.groups import Group, Place, Unit, cache_path, decode, joined, read_cache, unit_starts, write_through
from schemas import interrupts, storage
from schemas.concurrency import available_memory, usable_cores
from schemas.errors import MillraceError
from schemas.spec.table import OFFSET, SPLIT, Schema, raw_columns
from schemas.storage import file_key

if TYPE_CHECKING:
    from schemas.profile.profiles import Profiles

MAX_WORKERS = 8  # by default: the parent alone could not use the work of more
MIN_BYTES = 64 << 20  # of the input, by default: a child takes about as long to start as to decode this
PARENT_BYTES = 2000 << 20  # peak memory of the parent with 5,000 columns; with ten it is 1,300 MB
CHILD_BYTES = 600 << 20  # peak memory of a child: with 5,000 columns 585 MB, with ten 360
_POLL_SECONDS = 0.2

# Arrow's own memory pool returns memory to the system and takes it again batch by batch, which costs 12 % of the time.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.rows.children import serve_parent; serve_parent({pipe})"

# Beam pickles DoFns, so they cannot hold the children themselves: they find them here, by the folder of their job.
_running: dict[str, Children] = {}


def workers_by_default(size: int) -> int:
    """The number of processes that work on an input of `size` bytes, including the parent."""
    if size < MIN_BYTES:
        return 1
    return min(usable_cores(), MAX_WORKERS, 1 + max(0, available_memory() - PARENT_BYTES) // CHILD_BYTES)


@dataclasses.dataclass(frozen=True)
class Collected:
    """Which profiles of the accepted rows are collected."""

    statistics: bool
    leakage: bool

    def new_profiles(self, schema: Schema) -> Profiles:
        """Profiles without any row."""
        from schemas.profile.columns import columns_of
        from schemas.profile.leakage import watched_rows
        from schemas.profile.profiles import Profiles

        return Profiles(columns_of(schema) if self.statistics else None, watched_rows(schema) if self.leakage else None)


@dataclasses.dataclass(frozen=True)
class Decode:
    """Decodes a group into its cache file, `path`."""

    path: str
    group: Group
    ready = True

    def run(self, schema: Schema) -> None:
        """Writes the file."""
        for _ in write_through(self.path, decode(self.group, schema, digests=True)):
            interrupts.check()


@dataclasses.dataclass(frozen=True)
class Observe:
    """Writes the profiles of the rows of a unit to a file, `path`.

    Attributes:
      unit: the groups of the unit.
      folder: the folder of the cache.
      collected: which profiles are collected.
      without: the offsets of rows that the transform has rejected, by the key of their file.
    """

    path: str
    unit: Unit
    folder: str
    collected: Collected
    without: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether all groups are cached."""
        return all(os.path.exists(cache_path(self.folder, group)) for group in self.unit)

    def run(self, schema: Schema) -> None:
        """Writes the file."""
        self.collect(schema).write(self.path)

    def collect(self, schema: Schema) -> Profiles:
        """Collects the profiles in this process, as the pipeline does of the same rows.

        Raises:
          MillraceError: a group that is not cached cannot be read.
        """
        profiles = self.collected.new_profiles(schema)
        names = [column.name for column in raw_columns(schema)]
        for group in self.unit:
            keys = np.array([file_key(part.file.path) for part in group], np.int64)
            path = cache_path(self.folder, group)
            decoded = read_cache(path) if os.path.exists(path) else decode(group, schema, digests=False)
            for rows, parts in joined(decoded, group):
                interrupts.check()
                files, offsets = keys[parts], np.asarray(rows.column(OFFSET))
                accepted = np.ones(rows.num_rows, bool)
                for key, places in self.without.items():
                    accepted &= (files != key) | ~np.isin(offsets, places)
                selected = rows if accepted.all() else rows.filter(pa.array(accepted))
                if selected.num_rows:
                    splits = np.asarray(selected.column(SPLIT))
                    profiles.add(selected.select(names), splits, files[accepted], offsets[accepted])
        return profiles


Step = Decode | Observe


def steps_of(groups: Iterable[Group], units: Sequence[Unit], collected: Collected, folder: str) -> list[Step]:
    """The steps of a job whose cache is in a folder. Files that cannot be cut, such as compressed ones, have none."""
    decoding = [
        Decode(cache_path(folder, group), group)
        for group in groups
        if all(part.end is not None and storage.is_local(part.file.path) for part in group)
    ]
    return [*decoding, *observations(units, collected, folder)]


def observations(units: Sequence[Unit], collected: Collected, folder: str) -> list[Observe]:
    """The steps that collect the profiles of all units, in the order of the units."""
    return [Observe(os.path.join(folder, f"observed-{i}"), unit, folder, collected) for i, unit in enumerate(units)]


class Children:
    """Child processes that work on steps until they are closed. Without any, the parent does what it waits for.

    Args:
      schema: the schema of the rows, which every step is run with.
      steps: the first steps.
      folder: the local folder of the job that they work for.
      children: the number of processes.
    """

    def __init__(self, schema: Schema, steps: Iterable[Step], folder: str, *, children: int) -> None:
        self._schema = schema
        self._folder = folder
        self._changed = threading.Condition()
        self._todo = {step.path: step for step in steps}  # no two steps write the same file
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
        ours, theirs = Pipe()
        fd = theirs.fileno()
        command = [sys.executable, "-c", _PROGRAM.format(path=sys.path, pipe=fd)]
        env = {**_ENVIRONMENT, **os.environ, "CUDA_VISIBLE_DEVICES": "-1"}  # no child needs a GPU
        with theirs, contextlib.suppress(OSError):  # in a session of its own, since Ctrl-C is for the parent alone
            child = subprocess.Popen(command, stdout=2, env=env, pass_fds=[fd], start_new_session=True)  # noqa: S603
            self._children.append(child)
            self._threads.append(threading.Thread(target=self._feed, args=(child, ours), name="child", daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Ends the children, and returns when they have ended."""
        _running.pop(self._folder, None)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for child in self._children:
            child.kill()
        for thread in self._threads:
            thread.join()

    @property
    def pids(self) -> list[int]:
        """The process ids of the children."""
        return [child.pid for child in self._children]

    def replace(self, step: Step, by: Step) -> None:
        """Replaces a step by another one, which is begun after all others. The former may have been begun."""
        with self._changed:
            self._todo.pop(step.path, None)
            self._todo[by.path] = by
            self._changed.notify_all()

    def take(self, path: str, kind: type[Step]) -> None:
        """Takes back the step that writes a file. Returns when nobody works on it, and does others of a kind meanwhile.

        Raises:
          MillraceError: a child was killed.
        """
        with self._changed:
            self._todo.pop(path, None)
        while True:
            interrupts.check()
            with self._changed:
                if self._failure is not None:
                    raise MillraceError(self._failure)
                if path not in self._busy:
                    return
                step = self._begin(kind)
                if step is None:
                    self._changed.wait(_POLL_SECONDS)
                    continue
            try:
                _try(step, self._schema)
            finally:
                self._end(step)

    def _begin(self, kind: type[Step] | None = None) -> Step | None:
        """Begins the next step, of a kind or of any, that is ready; None if there is none."""
        for path, step in self._todo.items():
            if (kind is None or isinstance(step, kind)) and step.ready:
                self._busy.add(path)
                return self._todo.pop(path)
        return None

    def _end(self, step: Step) -> None:
        with self._changed:
            self._busy.discard(step.path)
            self._changed.notify_all()

    def _next(self) -> Step | None:
        """Waits for a step that a child can do; None when this is closed."""
        with self._changed:
            while not self._closed:
                step = self._begin()
                if step is not None:
                    return step
                self._changed.wait(_POLL_SECONDS)
        return None

    def _feed(self, child: subprocess.Popen[bytes], pipe: Connection) -> None:
        """Hands steps to a child, one at a time, until this is closed or the child has ended."""
        with contextlib.suppress(OSError, EOFError), pipe:
            pipe.send(self._schema)
            while (step := self._next()) is not None:
                pipe.send(step)
                pipe.recv_bytes()
                self._end(step)
        code = child.wait()
        with self._changed:
            if not self._closed:
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                why = ", probably because memory ran out" if code == -signal.SIGKILL else ""
                self._failure = (
                    f"process {child.pid}, which worked for this job, {how}{why}. Nothing was committed. "
                    "Give --workers 1, with which the job does everything by itself, or more memory."
                )
            self._changed.notify_all()


def serve_parent(pipe: int) -> None:
    """Runs, in a child, each step that a pipe brings, and answers when it has ended."""
    with contextlib.suppress(EOFError, OSError), Connection(pipe) as parent:  # the parent has ended, or ends this
        schema = parent.recv()
        while True:
            _try(parent.recv(), schema)
            parent.send_bytes(b"done")


def _try(step: Step, schema: Schema) -> None:
    with contextlib.suppress(Exception):  # whoever needs the file does the step again, and reports the same error
        step.run(schema)


def wait_for(folder: str, group: Group) -> None:
    """Returns when a group is either cached, or not begun by any child and left to the caller to decode.

    Raises:
      MillraceError: a child was killed.
    """
    if folder in _running:
        _running[folder].take(cache_path(folder, group), Decode)


def collect_profiles(
    schema: Schema, folder: str, units: Sequence[Unit], collected: Collected, rejected: Iterable[Place]
) -> Profiles:
    """Collects the profiles of all units, and merges them in the order of the units.

    Args:
      schema: the schema of the rows.
      folder: the folder of the cache, whose children are running.
      units: the units, whose groups are all cached.
      collected: which profiles are collected.
      rejected: the rows that the transform has rejected.

    Raises:
      MillraceError: a child was killed, or the input cannot be read.
    """
    from schemas.profile.profiles import Profiles

    children = _running[folder]
    steps, starts = observations(units, collected, folder), unit_starts(units)
    rejected_by_unit: dict[int, dict[int, list[int]]] = {}
    for key, offset in rejected:
        number = bisect.bisect(starts, (key, offset)) - 1
        rejected_by_unit.setdefault(number, {}).setdefault(key, []).append(offset)
    for number, without in sorted(rejected_by_unit.items()):  # what was collected with the rejected rows is not used
        again = dataclasses.replace(steps[number], path=f"{steps[number].path}-again", without=without)
        children.replace(steps[number], again)
        steps[number] = again
    total = collected.new_profiles(schema)
    for step in steps:
        children.take(step.path, Observe)
        try:
            profiles = Profiles.read(step.path)
            os.remove(step.path)
        except OSError:  # nobody has collected them, or a child met an error or a full disk
            profiles = step.collect(schema)
        total.merge(profiles)
    return total
