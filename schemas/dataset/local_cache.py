"""Keeps copies of a dataset's files on local disk, for this training and the next ones: `--cache_dir`.

    CACHE/lock                     held by the process that makes copies, or room for them
    CACHE/<dataset>/<run>/         the files of one run, by the names that the manifest gives them
    CACHE/<dataset>/<run>.in_use   held by every process that reads the run; its time is that of the last use

A run is never written to again, so a copy never becomes outdated: it is compared with the size and the checksum that
the manifest names, when it is made and when a process begins to use it. Several processes may share a cache: one makes
copies while the others wait for it. Runs that no process reads make room for others, the one that was used longest ago
first. Locks (flock) end with their processes, however these end.
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
COPIES = 8  # files that are copied at once
_CHUNK = 4 << 20  # bytes
_LOCK, _IN_USE = "lock", ".in_use"

Copied = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True)
class CachedDataset:
    """A dataset whose files a process holds in the cache.

    Attributes:
      dataset: reads these files instead of those of the dataset directory.
      files: how many files are in the cache.
      copied: how many of them were copied now; and their bytes.
    """

    dataset: OpenDataset
    files: int
    copied: int
    copied_bytes: int


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

    def hold(
        self, dataset: OpenDataset, splits: Sequence[str], *, copied: Copied = lambda name, size: None
    ) -> CachedDataset:
        """Copies what a training reads, unless it is there: the graphs, the parity records, and the splits' shards.

        Args:
          dataset: an opened dataset, on any store.
          splits: those whose shards are copied.
          copied: called after each file that is copied, with its path in the dataset and its bytes.

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
        """The folder of a dataset directory. Its name begins as that of the directory, for people."""
        place = os.path.abspath(data_dir) if storage.is_local(data_dir) else data_dir.rstrip("/")
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in os.path.basename(place))
        return os.path.join(self._folder, f"{name[:40]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}")

    def _use(self, run_dir: str) -> None:
        """Locks a run against its removal."""
        os.makedirs(run_dir, exist_ok=True)
        use = open(f"{run_dir}{_IN_USE}", "ab")  # noqa: SIM115 - closed by `close`
        self._uses.append(use)
        storage.lock(use, shared=True)
        os.utime(use.fileno())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(os.path.join(self._folder, _LOCK), "ab") as lock:
            storage.lock(lock)
            yield

    def _lacking(self, root: str, files: Sequence[File | Shard]) -> list[File | Shard]:
        """The files of which there is no copy, or one of another content."""
        there = in_threads(lambda file: _matches(os.path.join(root, file.path), file), files, threads=COPIES)
        return [file for file, matches in zip(files, there, strict=True) if not matches]

    def _make_room(
        self, root: str, dataset: OpenDataset, files: Sequence[File | Shard], lacking: Sequence[File | Shard]
    ) -> None:
        """Makes room for the files that are lacking: removes what killed processes have left, then unused runs.

        Raises:
          UsageError: there is too little room all the same.
        """
        for file in lacking:
            storage.delete(os.path.join(root, file.path))
        for folder, _, names in os.walk(self._folder):
            for name in filter(TEMPORARY.fullmatch, names):
                storage.delete(os.path.join(folder, name))
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
        """The runs that no process reads, the one that was used longest ago first."""
        uses = glob.glob(os.path.join(glob.escape(self._folder), "*", f"*{_IN_USE}"))
        for use in sorted(uses, key=os.path.getmtime):
            with open(use, "ab") as lock:
                if storage.lock(lock, wait=False):
                    yield use.removesuffix(_IN_USE)


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
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)
