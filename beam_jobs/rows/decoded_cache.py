"""Caches on local disk what the first read of a group of ranges decodes, for the second read.

The cache is an Arrow file with LZ4. Writing and reading it takes a seventh of the time of decoding the CSV, and half
the CSV's disk space. It is optional: what is not cached is decoded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Generator, Iterator

import pyarrow as pa

from beam_jobs.rows.groups import Group, InGroup
from schemas.rejects import Reject
from schemas.rows import Decoded
from schemas.storage.json_files import parse_json

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_PART, _READ, _CONSUMED, _REJECTS = b"part", b"read", b"consumed", b"rejects"  # metadata keys of a batch


def cache_path(folder: str, group: Group) -> str:
    """The cache file of a group of ranges."""
    name = "\0".join(f"{part.file.path}\0{part.start}\0{part.end}" for part in group).encode()
    return os.path.join(folder, f"decoded-{hashlib.blake2b(name, digest_size=16).hexdigest()}.arrow")


def write_through(path: str, batches: Iterator[InGroup]) -> Generator[InGroup, None, None]:
    """Yields `batches` and writes them to a cache file, which appears when it is complete; a full disk disables it."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    writer = _Writer(temporary)
    try:
        for part, decoded in batches:
            writer.write(part, decoded)
            yield part, decoded
        if writer.close():
            os.replace(temporary, path)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            os.remove(temporary)


def read_cache(path: str) -> Iterator[InGroup]:
    """Reads the cached batches, which equal those that were written.

    Raises:
        FileNotFoundError: the group is not cached.
    """
    with pa.OSFile(path, "rb") as file, pa.ipc.open_file(file) as reader:
        for i in range(reader.num_record_batches):
            batch, metadata = reader.get_batch_with_custom_metadata(i)
            rejects = [Reject.from_json(line) for line in parse_json(metadata[_REJECTS])]
            decoded = Decoded(batch, rejects, int(metadata[_READ]), int(metadata[_CONSUMED]))
            yield int(metadata[_PART]), decoded


class _Writer:
    """Writes an Arrow file of batches; opens it with the first batch, and gives up silently if the disk refuses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = contextlib.ExitStack()
        self._stream: pa.ipc.RecordBatchFileWriter | None = None
        self._failed = False

    def write(self, part: int, decoded: Decoded) -> None:
        if self._failed:
            return
        rejects = json.dumps([reject.to_json() for reject in decoded.rejects])
        try:
            if self._stream is None:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                file = self._files.enter_context(pa.OSFile(self._path, "wb"))
                self._stream = pa.ipc.new_file(file, decoded.batch.schema, options=_OPTIONS)
                self._files.enter_context(self._stream)
            counts = {_READ: str(decoded.read), _CONSUMED: str(decoded.consumed)}
            metadata = {_PART: str(part), **counts, _REJECTS: rejects}
            self._stream.write_batch(decoded.batch, custom_metadata=metadata)
        except OSError:
            self._failed = True
            self.close()
            with contextlib.suppress(OSError):
                os.remove(self._path)  # frees its disk space

    def close(self) -> bool:
        """Closes the file; returns whether it contains all batches."""
        try:
            self._files.close()
        except OSError:
            self._failed = True
        return self._stream is not None and not self._failed
