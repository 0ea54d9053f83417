"""Jobs and prunes that take milliseconds, in steps: the lease, a run folder, the manifest, the cleanup.

They are generators, so that a test can run the work of other processes between any two steps. The file operations are
those of the package. `interrupted` calls a function just before the n-th of them, where a process may be stopped for
hours.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any
from unittest import mock

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease, LeaseError, hold
from schemas.dataset.manifest import Manifest, Shard, SplitShards, read_manifest
from schemas.dataset.prune import prune
from schemas.errors import MillraceError
from schemas.storage import folders

STEPS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.link"})

Work = Generator[None, None, None]


def shard(run: str) -> Shard:
    """The only shard of a run."""
    return Shard(path=f"{run}/train-00000-of-00001.tfrecord", rows=1, bytes=4, crc32c="00000000")


def manifest(run: str, *, keeps: tuple[Shard, ...] = (), previous: tuple[str, ...] = ()) -> Manifest:
    """The manifest of a run with one shard, and with the shards of earlier runs that it keeps."""
    shards = (*keeps, shard(run))
    return Manifest(
        run=run,
        created="",
        name="x",
        schema_fingerprint="",
        compression="none",
        seed=0,
        split_hash_version=1,
        versions={},
        inputs=(),
        splits={"train": SplitShards(rows=len(shards), shards=shards)},
        files=(),
        counts=(),
        read=len(shards),
        written=len(shards),
        rejected=0,
        previous=previous,
        seconds=0,
    )


def shards_of(dataset_manifest: Manifest) -> tuple[Shard, ...]:
    return tuple(shard for split in dataset_manifest.splits.values() for shard in split.shards)


def run_folder(data_dir: str, run: str) -> None:
    storage.write_bytes(storage.join(data_dir, f"{run}/train-00000-of-00001.tfrecord"), b"1234")


def held_from(data_dir: str, run: str) -> contextlib.AbstractContextManager[Lease]:
    """A lease whose last heartbeat is always stale; it renews none by itself."""
    return hold(data_dir, run=run, beat_seconds=1e6, stale_seconds=-1)


def job(data_dir: str, run: str, *, appends: bool, committed: list[str]) -> Work:
    """A job, or a replay that keeps the existing shards. Adds its run to `committed` when it ends with 0."""
    with held_from(data_dir, run) as lease:
        replaces = folders.look(storage.join(data_dir, layout.MANIFEST))
        yield
        run_folder(data_dir, run)
        old = read_manifest(data_dir)
        keeps = shards_of(old) if appends else ()
        new = manifest(run, keeps=keeps, previous=tuple(sorted(old.runs)))
        yield
        lease.put(layout.MANIFEST, new.to_json(), replaces)
        committed.append(run)
        yield
        with contextlib.suppress(LeaseError):  # as `cleanup.clear` does: the dataset is written
            prune(data_dir, lease)
        yield


def pruning(data_dir: str, *, keep_previous: bool) -> Work:
    """`python -m schemas.dataset prune`."""
    with held_from(data_dir, "prune") as lease:
        yield
        prune(data_dir, lease, keep_previous=keep_previous)
        yield


def advance(work: Work, steps: int | None = None) -> None:
    """Runs this many steps of a job, by default all that are left; the job may find that another was faster."""
    with contextlib.suppress(MillraceError):
        for i, _ in enumerate(work, 1):
            if i == steps:
                return


class Interrupted:
    """Calls functions just before given file operations, local or in the cloud, of the block's own thread."""

    def __init__(self, calls: dict[int, list[Callable[[], None]]]) -> None:
        self.calls = calls
        self.count = 0
        self._inside = False
        self._thread = threading.get_ident()

    def step(self) -> None:
        if self._inside or threading.get_ident() != self._thread:
            return
        self._inside = True
        try:
            for call in self.calls.get(self.count, ()):
                call()
        finally:
            self._inside = False
        self.count += 1


@contextlib.contextmanager
def interrupted(data_dir: str, calls: dict[int, list[Callable[[], None]]]) -> Iterator[Interrupted]:
    """Counts the block's file operations, and makes the calls before them."""
    counter = Interrupted(calls)
    with (_of_the_system if storage.is_local(data_dir) else _of_requests)(counter.step):
        yield counter


_steps: list[Callable[[], None]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _steps and event in STEPS:
        _steps[-1]()


@contextlib.contextmanager
def _of_the_system(step: Callable[[], None]) -> Iterator[None]:
    if not getattr(_hook, "added", False):
        sys.addaudithook(_hook)
        _hook.added = True  # type: ignore[attr-defined]
    _steps.append(step)
    try:
        yield
    finally:
        _steps.pop()


@contextlib.contextmanager
def _of_requests(step: Callable[[], None]) -> Iterator[None]:
    """Google's client library sends its requests with this package."""
    from requests import Session

    original = Session.request

    def request(self: Session, *args: Any, **kwargs: Any) -> Any:
        step()
        return original(self, *args, **kwargs)

    with mock.patch.object(Session, "request", request):
        yield


def missing(data_dir: str) -> list[str]:
    """The shards that the manifest names and that do not exist."""
    return [s.path for s in shards_of(read_manifest(data_dir)) if not storage.exists(storage.join(data_dir, s.path))]


def names(data_dir: str) -> list[str]:
    return sorted(os.listdir(data_dir))
