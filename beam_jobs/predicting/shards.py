"""Writes the predictions of a bundle to shards, each under a name of its own in the run's staging folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from typing import Any, BinaryIO

import google_crc32c
import pyarrow as pa

from beam_jobs.predicting.formats import Format, Writer
from schemas import storage
from schemas.dataset import layout
from schemas.storage import folders


@dataclasses.dataclass(frozen=True)
class WrittenShard:
    """A complete shard in staging. `first`: the file and the offset of its first prediction."""

    path: str
    rows: int
    bytes: int
    crc32c: str
    first: tuple[str, int]


class _Summed:
    """A file that computes the size and the CRC-32C of what is written."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path = file, path
        self._crc = google_crc32c.Checksum()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        with storage.wrap_errors(self._path):
            self._file.write(data)
        self._crc.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """What is written is flushed at the end."""

    def sync(self) -> str:
        """Flushes everything to disk, and returns the checksum."""
        with storage.wrap_errors(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._crc.hexdigest().decode()


class _Open:
    """The shard that is being written."""

    def __init__(self, path: str, form: Format, schema: pa.Schema, first: tuple[str, int]) -> None:
        self.path, self.first, self.rows = path, first, 0
        self._stack = contextlib.ExitStack()
        with self._stack:  # closed here only if opening fails
            with storage.wrap_errors(path):
                local = self._stack.enter_context(folders.written_locally(path))
                file = self._stack.enter_context(open(local, "wb", buffering=1 << 20))  # noqa: SIM115 - by the stack
            self.file = _Summed(file, path)
            self.writer: Writer = form.open(self.file, schema)
            self._stack = self._stack.pop_all()

    def finish(self) -> WrittenShard:
        with self._stack:  # uploads a file that was written locally
            self.writer.close()
            crc32c = self.file.sync()
        return WrittenShard(self.path, self.rows, self.file.size, crc32c, self.first)

    def drop(self) -> None:
        """Closes the file of a bundle that has failed; its folder is removed with the run's other leftovers."""
        with contextlib.suppress(OSError):
            self._stack.__exit__(RuntimeError, RuntimeError("dropped"), None)


class ShardWriter:
    """Writes encoded batches one after the other, and begins another shard when one is large enough.

    Args:
      folder: the staging folder.
      form: the format.
      suffix: of the files' names.
      shard_bytes: the size at which a shard ends.
    """

    def __init__(self, folder: str, form: Format, *, suffix: str, shard_bytes: float) -> None:
        self._folder, self._form, self._suffix, self._shard_bytes = folder, form, suffix, shard_bytes
        self._open: _Open | None = None
        self._done: list[WrittenShard] = []

    def write(self, encoded: Any, schema: pa.Schema, *, rows: int, first: tuple[str, int]) -> None:
        """Adds a batch of `rows` predictions, whose first one is that of the record at `first`."""
        if self._open is None:
            path = layout.join(self._folder, f"predictions-{uuid.uuid4().hex}.{self._suffix}")
            self._open = _Open(path, self._form, schema, first)
        self._open.writer.write(encoded)
        self._open.rows += rows
        if self._open.file.size >= self._shard_bytes:
            self._end_shard()

    def close(self) -> list[WrittenShard]:
        """Ends the last shard, and returns all of them."""
        self._end_shard()
        done, self._done = self._done, []
        return done

    def drop(self) -> None:
        """Gives up what was written."""
        if self._open is not None:
            self._open.drop()
        self._open, self._done = None, []

    def _end_shard(self) -> None:
        if self._open is not None:
            self._done.append(self._open.finish())
            self._open = None
