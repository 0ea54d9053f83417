"""Copies of a dataset's files on local disk, kept between trainings: `--cache_dir`.

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
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence, Set
from typing import BinaryIO

import google_crc32c

from schemas import storage
from schemas.concurrency import in_threads
from schemas.dataset import layout
from schemas.dataset.manifest import File, Shard
from schemas.dataset.opening import OpenDataset
from schemas.errors import MillraceError, UsageError
from schemas.storage.gcs_access import tensorflow_problem
from schemas.storage.local import TEMPORARY

DEFAULT_GB = 50.0
COPIES = 8  # files that are copied at once
_CHUNK = 4 << 20  # bytes
_LOCK, _IN_USE = "lock", ".in_use"

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

    dataset: OpenDataset
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

    def hold(self, dataset: OpenDataset, splits: Sequence[str], *, copied: Copied = lambda name, size: None) -> Held:
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
        files: list[File | Shard] = [*needed]  # those first that are no use elsewhere
        for split in dict.fromkeys(splits):
            files += dataset.manifest.splits[split].shards
        with storage.wrap_errors(self._folder):
            os.makedirs(root, exist_ok=True)
            with self._locked():
                for run in sorted({file.path.split("/")[0] for file in files}):
                    self._use(os.path.join(root, run))
            made = self._lacking(root, files)
            left_out: tuple[str, ...] = ()
            if made:
                with self._locked():
                    made = self._lacking(root, made)  # another process may have made them meanwhile
                    fit = self._that_fit(root, made)
                    left_out = tuple(file.path for file in made[len(fit) :])
                    self._check_room(dataset, files, left_out, needed={file.path for file in needed})
                    made = fit
                    in_threads(lambda file: self._copy(dataset, root, file, copied), made, threads=COPIES)
        return Held(
            dataclasses.replace(
                dataset, copies=root, copied=frozenset(file.path for file in files).difference(left_out)
            ),
            files=len(files) - len(left_out),
            copied=len(made),
            copied_bytes=sum(file.bytes for file in made),
            left_out=left_out,
        )

    def _root(self, data_dir: str) -> str:
        """The folder of a dataset directory. Its name begins as that of the directory, for people."""
        place = os.path.abspath(data_dir) if storage.is_local(data_dir) else data_dir.rstrip("/")
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in os.path.basename(place))
        return os.path.join(self._folder, f"{name[:40]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}")

    def _check_room(
        self, dataset: OpenDataset, files: Sequence[File | Shard], left_out: Sequence[str], *, needed: Set[str]
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

    def _that_fit(self, root: str, files: list[File | Shard]) -> list[File | Shard]:
        """The first of the files that are to be copied, as many as there is room for; makes room for all if it can.

        What killed processes have left is removed, and then runs that no process reads.
        """
        for file in files:
            storage.delete(os.path.join(root, file.path))
        for folder, _, names in os.walk(self._folder):
            for name in filter(TEMPORARY.fullmatch, names):
                storage.delete(os.path.join(folder, name))
        room = self._limit - _size_of(self._folder)
        missing = sum(file.bytes for file in files) - room
        for run_dir in self._unused() if missing > 0 else ():
            missing -= _size_of(run_dir)
            shutil.rmtree(run_dir)
            os.unlink(f"{run_dir}{_IN_USE}")
            if missing <= 0:
                break
        room = self._limit - _size_of(self._folder)
        sizes = itertools.accumulate(file.bytes for file in files)
        return files[: sum(size <= room for size in sizes)]

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
