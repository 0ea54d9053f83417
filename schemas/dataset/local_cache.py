"""Keeps copies of a dataset's files on local disk, for this training and later ones (`--cache_dir`).

    CACHE/lock                     locked by the process that makes copies, or room for them
    CACHE/<dataset>/<run>/         the files of one run, under the names that the manifest gives them
    CACHE/<dataset>/<run>.in_use   locked by every process that reads the run; its time is that of the last use

The files of a run never change, so a copy never becomes outdated. A copy is compared with the size and the checksum in
the manifest, both when it is made and when a process begins to use it. Several processes may share a cache: one of them
makes copies while the others wait. If the cache is full, runs that no process reads are removed, the run that was used
longest ago first. The locks (flock) end with their processes, even if these are killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import google_crc32c

from schemas import storage
from schemas.concurrency import in_threads
from schemas.dataset import layout
from schemas.dataset.manifest import File, Shard
from schemas.dataset.opening import OpenDataset
from schemas.errors import MillraceError, UsageError
from schemas.storage.local import TEMPORARY

DEFAULT_GB = 50.0
COPIES = 8  # the number of files that are copied at the same time
_CHUNK = 4 << 20  # bytes
_LOCK, _IN_USE = "lock", ".in_use"

Copied = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True)
class CachedDataset:
    """A dataset with copies of its files in the cache. This process holds the copies, so that nobody removes them.

    Attributes:
      dataset: the dataset. It reads the copies instead of the files of the dataset directory.
      files: the number of files in the cache.
      copied: the number of these files that were copied now.
      copied_bytes: the size of the files that were copied now.
    """

    dataset: OpenDataset
    files: int
    copied: int
    copied_bytes: int


class LocalCache:
    """A cache folder. The runs that this process uses are locked until `close`, or until the process ends.

    Args:
      folder: a folder on local disk. It is created if it is missing.
      limit_bytes: the most that all files in the folder may take, in bytes.

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
        """Unlocks the runs, so that other processes may remove their files."""
        while self._uses:
            self._uses.pop().close()

    def hold(
        self, dataset: OpenDataset, splits: Sequence[str], *, copied: Copied = lambda name, size: None
    ) -> CachedDataset:
        """Copies the files of a dataset that a training reads, if they are not in the cache yet, and locks their runs.

        These are the graphs, the parity records, the other files of the run except its rejects, and the shards of some
        splits.

        Args:
          dataset: an open dataset, on any store.
          splits: the splits whose shards are copied.
          copied: a function that is called after each copy, with the file's path in the dataset and its size in bytes.

        Raises:
          UsageError: the cache is too small.
          MillraceError: a file cannot be read, or differs from the manifest; or the disk is full.
        """
        root = self._root(dataset.path)
        files: list[File | Shard] = [
            file for file in dataset.manifest.files if not layout.REJECTS.fullmatch(os.path.basename(file.path))
        ]
        for split in dict.fromkeys(splits):
            files += dataset.manifest.splits[split].shards
        with storage.wrap_errors(self._folder):
            os.makedirs(root, exist_ok=True)
            with self._locked():
                for run in sorted({file.path.split("/")[0] for file in files}):
                    self._use(os.path.join(root, run))
            lacking = self._lacking(root, files)
            if lacking:
                with self._locked():
                    lacking = self._lacking(root, lacking)  # another process may have made them meanwhile
                    self._make_room(root, dataset, files, lacking)
                    in_threads(lambda file: self._copy(dataset, root, file, copied), lacking, threads=COPIES)
        cached = dataclasses.replace(dataset, copies=root, copied=frozenset(file.path for file in files))
        return CachedDataset(cached, len(files), len(lacking), sum(file.bytes for file in lacking))

    def _root(self, data_dir: str) -> str:
        """Returns the folder for the copies of a dataset: the directory's name, for people, and a hash of its path."""
        place = os.path.abspath(data_dir) if storage.is_local(data_dir) else data_dir.rstrip("/")
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in os.path.basename(place))
        return os.path.join(self._folder, f"{name[:40]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}")

    def _use(self, run_dir: str) -> None:
        """Locks a run, so that no other process removes it."""
        os.makedirs(run_dir, exist_ok=True)
        use = open(f"{run_dir}{_IN_USE}", "ab")  # noqa: SIM115 - closed by `close`
        self._uses.append(use)
        storage.lock(use, shared=True)
        os.utime(use.fileno())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the cache in the block, against other processes that make copies or room."""
        with open(os.path.join(self._folder, _LOCK), "ab") as lock:
            storage.lock(lock)
            yield

    def _lacking(self, root: str, files: Sequence[File | Shard]) -> list[File | Shard]:
        """Returns the files that have no copy yet, or a copy with another content."""
        there = in_threads(lambda file: _matches(os.path.join(root, file.path), file), files, threads=COPIES)
        return [file for file, matches in zip(files, there, strict=True) if not matches]

    def _make_room(
        self, root: str, dataset: OpenDataset, files: Sequence[File | Shard], lacking: Sequence[File | Shard]
    ) -> None:
        """Makes room for new copies: removes what killed processes left behind, then runs that no process uses.

        Args:
          root: the folder of the dataset's copies.
          dataset: the dataset, for messages.
          files: all files that the training reads.
          lacking: the files that must be copied.

        Raises:
          UsageError: there is still too little room.
        """
        for file in lacking:
            storage.delete(os.path.join(root, file.path))
        for folder, _, names in os.walk(self._folder):
            for name in filter(TEMPORARY.fullmatch, names):
                storage.delete(os.path.join(folder, name))
        # The bytes by which the cache would exceed its limit after the copies.
        missing = sum(file.bytes for file in lacking) + _size_of(self._folder) - self._limit
        for run_dir in self._unused() if missing > 0 else ():
            missing -= _size_of(run_dir)
            shutil.rmtree(run_dir)
            os.unlink(f"{run_dir}{_IN_USE}")
            if missing <= 0:
                break
        if missing > 0:
            size = sum(file.bytes for file in files) / 1e9
            raise UsageError(
                f"--cache_gb {self._limit / 1e9:g}: {dataset.path} takes {size:,.3f} GB, for which there is no room in "
                f"{self._folder}. Give --cache_gb {size * 1.01 + 0.001:,.3f} or more, or train without --cache_dir"
            )

    def _copy(self, dataset: OpenDataset, root: str, file: File | Shard, copied: Copied) -> None:
        """Copies a file, and compares the copy with the manifest."""
        path, source = os.path.join(root, file.path), layout.join(dataset.path, file.path)
        with storage.wrap_errors(source), storage.open_read(source) as opened, storage.NewFile(path) as copy:
            shutil.copyfileobj(opened, copy, _CHUNK)
        if not _matches(path, file):
            storage.delete(path)
            raise MillraceError(
                f"{source}: differs from the size or the checksum that {layout.MANIFEST} names: the file was "
                "changed after it was written. Restore it, or write the dataset again."
            )
        copied(file.path, file.bytes)

    def _unused(self) -> Iterator[str]:
        """Yields the runs that no process reads, the one that was used longest ago first.

        Each run is locked until the next one is asked for.
        """
        uses = glob.glob(os.path.join(glob.escape(self._folder), "*", f"*{_IN_USE}"))
        for use in sorted(uses, key=os.path.getmtime):
            with open(use, "ab") as lock:
                if storage.lock(lock, wait=False):
                    yield use.removesuffix(_IN_USE)


def _matches(path: str, file: File | Shard) -> bool:
    """Whether there is a copy of the file's size and checksum."""
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
    """Returns the size of all files below a folder, in bytes."""
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)
