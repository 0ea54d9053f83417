"""Copies of a dataset's files on local disk, kept between trainings: `--cache_dir`.

    CACHE/lock                          held while room is made for a file
    CACHE/<dataset>/<run>/              the files of one run, by the names that the manifest gives them
    CACHE/<dataset>/<run>.locks/in_use  held by every process that reads the run; its time is that of the last use
    CACHE/<dataset>/<run>.locks/<file>  held by the process that copies the file

A run is never written to again, so a copy never becomes outdated: it is compared with the size and the checksum that
the manifest names, when it is made and when a process begins to use it. Several processes may share a cache. A file is
copied by one of them while the others wait for it. Runs that no process reads make room for others, the one that was
used longest ago first. Locks (flock) end with their processes, however these end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence, Set
from typing import BinaryIO

import google_crc32c

from schemas import storage
from schemas.concurrency import in_threads
from schemas.dataset import layout
from schemas.dataset.manifest import File, Shard
from schemas.dataset.opening import Dataset
from schemas.errors import MillraceError, UsageError
from schemas.storage.gcs_access import tensorflow_problem

DEFAULT_GB = 50.0
COPIES = 8  # files that are copied at once
_CHUNK = 4 << 20  # bytes
_LOCK, _LOCKS, _IN_USE, _PARTIAL = "lock", ".locks", "in_use", ".partial"
WAIT_SECONDS = 600.0  # for another process that copies the same file
_POLL_SECONDS = 0.1

Copied = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True)
class Held:
    """What a process holds in the cache.

    Attributes:
      dataset: reads these files instead of those of the dataset directory.
      files: how many files are in the cache.
      copied: how many of them were copied now; and their bytes.
      left_out: the shards for which there was no room; they are read where the dataset is.
    """

    dataset: Dataset
    files: int
    copied: int
    copied_bytes: int
    left_out: tuple[str, ...]


class LocalCache:
    """A folder of copies. What this process uses is locked until `close`, or until the process ends.

    Args:
      folder: on local disk; it is made if it is missing.
      limit_bytes: the most that all files in it may take.

    Raises:
      UsageError: the folder is not on local disk.
    """

    def __init__(self, folder: str, limit_bytes: int = int(DEFAULT_GB * 1e9)) -> None:
        if not storage.is_local(folder):
            raise UsageError(f"--cache_dir {folder}: must be on local disk")
        self._folder = os.path.abspath(folder)
        self._limit = limit_bytes
        self._uses: list[BinaryIO] = []

    def close(self) -> None:
        """Gives up the files: other processes may remove them."""
        while self._uses:
            self._uses.pop().close()

    def hold(self, dataset: Dataset, splits: Sequence[str], *, copied: Copied = lambda name, size: None) -> Held:
        """Copies what a training reads, unless it is there: the graphs, the parity records, and the splits' shards.

        Args:
          dataset: an opened dataset, on any store.
          splits: those whose shards are copied, the first one first.
          copied: called after each file that is copied, with its path in the dataset and its bytes.

        Raises:
          UsageError: the cache is too small, and TensorFlow cannot read the rest of the shards itself.
          MillraceError: a file cannot be read, or differs from the manifest; or the disk is full.
        """
        root = self._root(dataset.path)
        needed = [file for file in dataset.manifest.files if not layout.REJECTS.fullmatch(os.path.basename(file.path))]
        files: list[File | Shard] = [*needed]
        for split in dict.fromkeys(splits):
            files += dataset.manifest.splits[split].shards
        with storage.wrap_errors(self._folder):
            os.makedirs(root, exist_ok=True)
            for run in sorted({file.path.split("/")[0] for file in files}):
                self._use(os.path.join(root, run))
            made: list[bool | None] = []
            for some in (files[: len(needed)], files[len(needed) :]):  # those first that are no use elsewhere
                made += in_threads(lambda file: self._copy(dataset, root, file, copied), some, threads=COPIES)
        left_out = tuple(file.path for file, new in zip(files, made, strict=True) if new is None)
        self._check_room(dataset, files, left_out, needed={file.path for file in needed})
        return Held(
            dataclasses.replace(
                dataset, copies=root, copied=frozenset(file.path for file in files).difference(left_out)
            ),
            files=len(files) - len(left_out),
            copied=sum(new is True for new in made),
            copied_bytes=sum(file.bytes for file, new in zip(files, made, strict=True) if new),
            left_out=left_out,
        )

    def _root(self, data_dir: str) -> str:
        """The folder of a dataset directory. Its name begins as that of the directory, for people."""
        place = os.path.abspath(data_dir) if storage.is_local(data_dir) else data_dir.rstrip("/")
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in os.path.basename(place))
        return os.path.join(self._folder, f"{name[:40]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}")

    def _check_room(
        self, dataset: Dataset, files: Sequence[File | Shard], left_out: Sequence[str], *, needed: Set[str]
    ) -> None:
        if not left_out:
            return
        problem = tensorflow_problem(dataset.path)
        if problem is None and needed.isdisjoint(left_out):
            return
        size = sum(file.bytes for file in files) / 1e9
        raise UsageError(
            f"--cache_gb {self._limit / 1e9:g}: {dataset.path} takes {size:,.3f} GB, for which there is no room in "
            f"{self._folder}"
            + (f"; TensorFlow cannot read it there, as it {problem}" if problem else "")
            + f". Give --cache_gb {size * 1.01 + 0.001:,.3f} or more"
        )

    def _use(self, run_dir: str) -> None:
        """Locks a run against its removal."""
        with self._locked():
            os.makedirs(run_dir, exist_ok=True)
            os.makedirs(f"{run_dir}{_LOCKS}", exist_ok=True)
            use = open(os.path.join(f"{run_dir}{_LOCKS}", _IN_USE), "ab")  # noqa: SIM115 - closed by `close`
            self._uses.append(use)
            storage.lock(use, shared=True)
            os.utime(use.fileno())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(os.path.join(self._folder, _LOCK), "ab") as held:
            storage.lock(held)
            yield

    def _copy(self, dataset: Dataset, root: str, file: File | Shard, copied: Copied) -> bool | None:
        """Whether the file was copied now; False if it was there, None if there is no room for it."""
        path, source = os.path.join(root, file.path), layout.join(dataset.path, file.path)
        run, _, name = file.path.partition("/")
        if _matches(path, file):
            return False
        with _only_one(os.path.join(root, f"{run}{_LOCKS}", name.replace("/", "~"))):
            if _matches(path, file):  # another process has copied it in the meantime
                return False
            partial = self._begin(path, file.bytes)
            if partial is None:
                return None
            with storage.wrap_errors(source), partial, storage.open_read(source) as opened:
                shutil.copyfileobj(opened, partial, _CHUNK)
            if not _matches(partial.name, file):
                raise MillraceError(
                    f"{source}: differs from the size or the checksum that {layout.MANIFEST} names: the file was "
                    "changed after it was written. Restore it, or write the dataset again."
                )
            with self._locked():  # who counts the bytes must not see both names
                os.replace(partial.name, path)
        copied(file.path, file.bytes)
        return True

    def _begin(self, path: str, size: int) -> BinaryIO | None:
        """A new file beside `path`, of its full size, so that others see that its room is taken; None without room."""
        partial = f"{path}{_PARTIAL}"
        with self._locked():
            for left in (path, partial):  # of another content, or of a process that was killed
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(left)
            if not self._has_room(size):
                return None
            os.makedirs(os.path.dirname(path), exist_ok=True)
            opened = open(partial, "xb")  # noqa: SIM115 - the caller closes it
            opened.truncate(size)
        return opened

    def _has_room(self, size: int) -> bool:
        """Whether a file fits, once runs that no process reads are removed as far as it takes."""
        used = _size_of(self._folder)
        for run_dir in self._unused() if used + size > self._limit else ():
            used -= _size_of(run_dir)
            shutil.rmtree(run_dir)
            shutil.rmtree(f"{run_dir}{_LOCKS}")
            if used + size <= self._limit:
                break
        return used + size <= self._limit

    def _unused(self) -> Iterator[str]:
        """The runs that no process reads, the one that was used longest ago first; each is locked when it is given."""
        uses = glob.glob(os.path.join(glob.escape(self._folder), "*", f"*{_LOCKS}", _IN_USE))
        for use in sorted(uses, key=os.path.getmtime):
            with open(use, "ab") as held:
                if storage.lock(held, wait=False):
                    yield os.path.dirname(use).removesuffix(_LOCKS)


@contextlib.contextmanager
def _only_one(path: str) -> Iterator[None]:
    """Waits until no other process, and no other thread, is inside such a block of the same path."""
    with open(path, "ab") as held:
        until = time.monotonic() + WAIT_SECONDS
        while not storage.lock(held, wait=False):
            if time.monotonic() > until:
                raise MillraceError(
                    f"{path}: another process has been copying this file for {WAIT_SECONDS / 60:.0f} minutes; end "
                    "it, or use another --cache_dir"
                )
            time.sleep(_POLL_SECONDS)
        yield


def _matches(path: str, file: File | Shard) -> bool:
    """Whether there is a file of this size and checksum."""
    sha, crc = hashlib.sha256(), google_crc32c.Checksum()
    try:
        if os.path.getsize(path) != file.bytes:
            return False
        with open(path, "rb") as opened:
            while chunk := opened.read(_CHUNK):
                (sha if isinstance(file, File) else crc).update(chunk)
    except FileNotFoundError:
        return False
    return sha.hexdigest() == file.sha256 if isinstance(file, File) else crc.hexdigest().decode() == file.crc32c


def _size_of(folder: str) -> int:
    """The bytes of all files below a folder."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # renamed by the process that has completed it
                size += os.lstat(os.path.join(path, name)).st_size
    return size
