"""Uploads merged shards while others are merged."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from beam_jobs.output.fragments import WrittenShard
from schemas import storage
from schemas.concurrency import ByteBudget
from schemas.dataset import layout
from schemas.storage import folders

UPLOADS = 4  # shards at once; each holds one request in memory
WAITING_BYTES = 1 << 30  # of merged shards on local disk, which are being uploaded or wait for it


class Uploads:
    """Gives local shards their places in a folder: as they are if it is local, else in threads that upload them.

    A merge waits while more than WAITING_BYTES of shards are on local disk.

    Args:
      target: the folder of the shards, local or gs://.
      aside: a local folder for shards until they are uploaded.
    """

    def __init__(self, target: str, *, aside: str) -> None:
        self._target = target
        self.folder = target if storage.is_local(target) else aside
        self._budget = ByteBudget(WAITING_BYTES)
        self._pool = ThreadPoolExecutor(UPLOADS, thread_name_prefix="upload")
        self._failure: BaseException | None = None

    def add(self, shard: WrittenShard) -> Future[WrittenShard]:
        """Takes a shard that was written to `folder`; returns it, at its place, once it is there.

        Raises:
          MillraceError: an earlier shard could not be uploaded.
        """
        if self.durable:
            there: Future[WrittenShard] = Future()
            there.set_result(shard)
            return there
        waiting = contextlib.ExitStack()
        waiting.enter_context(self._budget.reserve(shard.bytes))
        if self._failure is not None:
            raise self._failure
        return self._pool.submit(self._upload, shard, waiting)

    @property
    def durable(self) -> bool:
        """Whether the folder's files are the result themselves, and must survive a power cut."""
        return self.folder == self._target

    def _upload(self, shard: WrittenShard, waiting: contextlib.ExitStack) -> WrittenShard:
        with waiting:
            there = layout.join(self._target, os.path.basename(shard.path))
            try:
                folders.move(shard.path, there)
            except BaseException as error:
                self._failure = error
                raise
        return dataclasses.replace(shard, path=there)

    def __enter__(self) -> Uploads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
