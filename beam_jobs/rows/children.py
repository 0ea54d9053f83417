"""Child processes that decode and profile rows for a local job, beside the process that runs its pipeline.

Each step of the work writes one file: the cache of a group, which both reads of the job share, or the profiles
(statistics, and what the leakage guard compares) of a unit. A worker, which is a child or the parent, claims a step
before it does it. Children go from the last group to the first, and the parent's pipeline from the first to the last,
so that they hardly ever meet. The parent does what no child has done: records, rejects, statistics and errors are those
of a job without children, also if a child fails or is killed.

Threads do not help here: decoding holds the GIL. Children import neither Beam nor TensorFlow, which would take each of
them seconds and a third of a GB. They decode while the parent still imports these.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO

import numpy as np
import pyarrow as pa

from beam_jobs.rows.cache import cache_path, claim, claimed, read_cache, write_through
from beam_jobs.rows.groups import Group, Place, Unit, decode, joined, unit_starts
from schemas import interrupts, storage
from schemas.concurrency import available_memory, usable_cores
from schemas.profile.columns import ProfiledColumn
from schemas.profile.leakage import WatchedRows
from schemas.profile.profiles import Profiles
from schemas.spec.table import OFFSET, SPLIT, Schema, raw_columns
from schemas.storage import file_key

MAX_WORKERS = 8  # by default: the parent alone could not use the work of more
MIN_BYTES = 64 << 20  # of the input, by default: a child takes about as long to start as to decode this
PARENT_BYTES = 2000 << 20  # peak memory of the parent with 5,000 columns; with ten it is 1,300 MB
CHILD_BYTES = 600 << 20  # peak memory of a child: with 5,000 columns 585 MB, with ten 360
_POLL_SECONDS = 0.2

# Arrow's own memory pool returns memory to the system and takes it again batch by batch, which costs 12 % of the time.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.rows.children import serve_parent; serve_parent()"


def workers_by_default(size: int) -> int:
    """Returns the number of processes that work on an input of `size` bytes, including the parent."""
    if size < MIN_BYTES:
        return 1
    return min(usable_cores(), MAX_WORKERS, 1 + max(0, available_memory() - PARENT_BYTES) // CHILD_BYTES)


@dataclasses.dataclass(frozen=True)
class SharedWork:
    """The work that the processes of a local job share.

    Attributes:
      schema: the schema of the rows.
      folder: the folder of the files that the steps write.
      groups: all groups.
      units: the same groups by unit; none: no profiles are collected.
      described: the columns whose statistics are collected; None: no statistics are.
      watched: the rows that the leakage guard compares; None: none.
    """

    schema: Schema
    folder: str
    groups: tuple[Group, ...]
    units: tuple[Unit, ...]
    described: Sequence[ProfiledColumn] | None
    watched: WatchedRows | None

    def divisible(self) -> list[Group]:
        """Returns the groups that children decode: files that cannot be cut, as compressed ones, are the parent's."""
        return [
            group
            for group in self.groups
            if all(part.end is not None and storage.is_local(part.file.path) for part in group)
        ]

    def decode(self, group: Group) -> None:
        """Writes the cache of a group."""
        for _ in write_through(cache_path(self.folder, group), decode(group, self.schema, digests=True)):
            pass

    def is_cached(self, unit: Unit) -> bool:
        """Returns whether all groups of a unit are cached."""
        return all(os.path.exists(cache_path(self.folder, group)) for group in unit)

    def profile_path(self, number: int) -> str:
        """Returns the path of the profiles of a unit, by its number."""
        return os.path.join(self.folder, f"observed-{number}")

    def observe(self, unit: Unit, rejected: Sequence[Place] = ()) -> Profiles:
        """Collects the profiles of a unit, but for rows that the transform has rejected.

        Raises:
          MillraceError: a group that is not cached cannot be read.
        """
        profiles = Profiles(self.described, self.watched)
        names = [column.name for column in raw_columns(self.schema)]
        rejected_by_file: dict[int, list[int]] = {}
        for key, offset in rejected:
            rejected_by_file.setdefault(key, []).append(offset)
        for group in unit:
            keys = np.array([file_key(part.file.path) for part in group], np.int64)
            path = cache_path(self.folder, group)
            decoded = read_cache(path) if os.path.exists(path) else decode(group, self.schema, digests=False)
            for rows, parts in joined(decoded, group):
                interrupts.check()
                files, offsets = keys[parts], np.asarray(rows.column(OFFSET))
                accepted = np.ones(rows.num_rows, bool)
                for key in rejected_by_file.keys() & set(keys.tolist()):
                    accepted &= (files != key) | ~np.isin(offsets, rejected_by_file[key])
                selected = rows if accepted.all() else rows.filter(pa.array(accepted))
                if selected.num_rows:
                    splits = np.asarray(selected.column(SPLIT))
                    profiles.add(selected.select(names), splits, files[accepted], offsets[accepted])
        return profiles

    def write_profiles(self, unit: Unit, path: str) -> None:
        """Writes the profiles of a unit to a file. Raises OSError if the disk refuses."""
        self.observe(unit).write(path)

    def observe_all(self, rejected: Iterable[Place]) -> Profiles:
        """Merges the profiles of all units, in their order, and collects those that no child has collected.

        Args:
          rejected: the rows that the transform has rejected, of which no child knows.

        Raises:
          MillraceError: the input cannot be read.
        """
        starts = unit_starts(self.units)
        rejected_by_unit: dict[int, list[Place]] = {}
        for place in rejected:
            rejected_by_unit.setdefault(bisect.bisect(starts, place) - 1, []).append(place)
        total = Profiles(self.described, self.watched)
        for number, unit in enumerate(self.units):
            path = self.profile_path(number)
            with claimed(path):
                if number not in rejected_by_unit and os.path.isfile(path):
                    total.merge(Profiles.read(path))
                else:
                    total.merge(self.observe(unit, rejected_by_unit.get(number, ())))
        return total


class Children:
    """Child processes that do steps of the work until none is left, or this is closed.

    If the system refuses to start one, the others and the parent do its work.
    """

    def __init__(self, work: SharedWork, *, children: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        command = [sys.executable, "-c", _PROGRAM.format(path=sys.path)]
        env = {**_ENVIRONMENT, **os.environ, "CUDA_VISIBLE_DEVICES": "-1"}  # no child needs a GPU
        data = pickle.dumps(work) if children else b""
        try:
            for _ in range(children):
                with contextlib.suppress(OSError):  # in a session of its own, since Ctrl-C is for the parent alone
                    process = subprocess.Popen(  # noqa: S603
                        command, stdin=subprocess.PIPE, stdout=2, env=env, start_new_session=True
                    )
                    self._processes.append(process)
                    threading.Thread(target=_send, args=(process.stdin, data), name="child", daemon=True).start()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the children."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """Ends the children, and returns when they have ended."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]


def _send(pipe: IO[bytes], data: bytes) -> None:
    """Sends a child its work. The pipe stays open, for the child ends with it."""
    with contextlib.suppress(OSError, ValueError):  # the child has ended, and perhaps the pipe is closed
        pipe.write(data)
        pipe.flush()


def serve_parent() -> None:
    """Does, in a child, the work that comes by standard input. Ends at once when the parent has ended."""
    work: SharedWork = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the parent of this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for group in reversed(work.divisible()):
        _do(cache_path(work.folder, group), functools.partial(work.decode, group))
    for number, unit in reversed([*enumerate(work.units)]):
        while not work.is_cached(unit):  # until the parent has read what cannot be cut
            time.sleep(_POLL_SECONDS)
        path = work.profile_path(number)
        _do(path, functools.partial(work.write_profiles, unit, path))


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


def _do(path: str, write: Callable[[], None]) -> None:
    """Does the step that writes a file, unless it is done, or another worker does it."""
    with claim(path) as is_ours, contextlib.suppress(Exception):  # the parent does it again, and reports the same error
        if is_ours and not os.path.exists(path):
            write()
