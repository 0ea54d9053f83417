"""Child processes that decode groups of ranges into the cache, ahead of a local job's reads.

Parsing CSV holds Python's lock for most of its time, so that threads gain little. A child parses while its parent still
imports TensorFlow, and stays ahead of it afterwards. Where the parent needs a group that is being decoded, it waits;
one that no child has begun, or that a child could not decode or cache, it decodes itself: so records, rejects and
errors are those of a job without children.

A child imports neither Beam nor TensorFlow. It ends with its parent, however that ends: its standard input is closed
then, and before each batch it looks whether its parent is still there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from beam_jobs.rows.groups import Digested, Group, cache_path, decode, write_through
from schemas import interrupts, storage
from schemas.concurrency import usable_cores
from schemas.errors import MillraceError
from schemas.spec.table import Schema

MAX_WORKERS = 4  # by default: decoding is about a third of a job's work, so more children would wait for their parent
MIN_BYTES = 64 << 20  # of the input, by default: what takes a child as long as it takes to start
CHILD_BYTES = 300 << 20  # of memory, at its peak
_LOOK_SECONDS = 0.2

_PROGRAM = "import sys; sys.path[:] = {path!r}; from beam_jobs.rows.children import work_as_told; work_as_told()"
_running: dict[str, Children] = {}  # by folder


def workers_by_default(size: int) -> int:
    """How many processes decode an input of `size` bytes, the parent among them."""
    return 1 if size < MIN_BYTES else min(usable_cores(), MAX_WORKERS)


class Children:
    """Children that decode groups, in their order, until all are done or it is closed.

    Args:
      schema: the schema of the files.
      groups: what is decoded. A compressed file, or another one that cannot be cut, is left to the parent.
      folder: the local folder of the cache.
      children: how many.
    """

    def __init__(self, schema: Schema, groups: Sequence[Group], folder: str, *, children: int) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._todo = {
            cache_path(folder, group): group
            for group in groups
            if all(part.end is not None and storage.is_local(part.file.path) for part in group)
        }
        self._busy: set[str] = set()
        self._failure: str | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._children: list[subprocess.Popen[bytes]] = []
        command = [sys.executable, "-c", _PROGRAM.format(path=sys.path)]
        pipe = subprocess.PIPE
        for _ in range(min(children, len(self._todo))):
            try:  # in a session of its own, since Ctrl-C is for the parent alone
                child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603
            except OSError:  # no process or memory is left; whoever needs the groups decodes them
                break
            self._children.append(child)
            thread = threading.Thread(target=self._feed, args=(child, schema), name="decoder", daemon=True)
            self._threads.append(thread)
            thread.start()
        _running[folder] = self

    def close(self) -> None:
        """Ends the children, and returns when they have ended."""
        _running.pop(self._folder, None)
        with self._changed:
            self._closed = True
            self._todo.clear()
        for child in self._children:
            child.kill()
        for thread in self._threads:
            thread.join()

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [child.pid for child in self._children]

    def wait_for(self, path: str) -> None:
        """Returns when no child decodes a group, and none will: it is cached by then, or the caller's to decode.

        Raises:
          MillraceError: a child was killed.
        """
        with self._changed:
            self._todo.pop(path, None)
            while path in self._busy and self._failure is None:
                interrupts.check()
                self._changed.wait(_LOOK_SECONDS)
            if self._failure is not None:
                raise MillraceError(self._failure)

    def _feed(self, child: subprocess.Popen[bytes], schema: Schema) -> None:
        """Hands groups to a child, one at a time, until none is left or the child has ended."""
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        assert child.stdout is not None  # noqa: S101
        path, ended = "", False
        try:
            _send(child.stdin, (schema, os.getpid()))
            while not ended:
                with self._changed:
                    if not self._todo:
                        break
                    path = next(iter(self._todo))
                    group = self._todo.pop(path)
                    self._busy.add(path)
                _send(child.stdin, (path, group))
                ended = not child.stdout.readline()
                if not ended:
                    with self._changed:
                        self._busy.discard(path)
                        self._changed.notify_all()
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


def _failure(pid: int, code: int) -> str:
    how = f"ended with exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-code).name}"
    why = ", probably because memory ran out" if code == -signal.SIGKILL else ""
    return (
        f"process {pid}, which decoded input for this job, {how}{why}. Nothing was committed. Give --workers 1, with "
        "which the job decodes all input by itself, or more memory."
    )


def _send(pipe: Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def work_as_told() -> None:
    """A child's work: decodes each group that standard input names, and answers with a line when it has ended."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has ended, or ends this
        schema, parent = _received()
        while True:
            path, group = _received()
            digested: Digested = []
            with contextlib.suppress(Exception):  # the parent, which decodes the group then, meets the same and says so
                for _ in write_through(path, decode(group, schema, digested), digested):
                    if os.getppid() != parent:
                        return
            os.write(sys.stdout.fileno(), b"\n")


def _received() -> Any:
    return pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
