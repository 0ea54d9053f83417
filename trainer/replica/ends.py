"""How the processes of a training tell each other that they have ended: a small file each, in the model directory.

A service ends all replicas with the chief, and so would end the evaluator before its last export. Parameter servers end
by themselves never. Both wait for such files, which need no connection between the processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage.json_files import parse_json
from trainer.replica.cluster import Task

FOLDER = "replicas"
POLL_SECONDS = 5.0
RESTART_SECONDS = 900.0  # a task that has failed, and that nobody starts again in this time, has failed for good


class Ends:
    """The files of one job.

    Args:
      model_dir: the model directory, which all processes reach.
      job: the job's name, which no other training into the same directory has.
    """

    def __init__(self, model_dir: str, job: str) -> None:
        self._folder = storage.join(model_dir, FOLDER, job)
        self._failed: dict[Task, float] = {}  # since when

    def clear(self, task: Task) -> None:
        """Removes what an earlier attempt at this task has left."""
        if storage.exists(self._path(task)):
            storage.delete(self._path(task))

    def write(self, task: Task, exit_code: int) -> None:
        """Notes that a task has ended."""
        storage.write_bytes(self._path(task), json.dumps({"exit_code": exit_code}).encode() + b"\n")

    def done(self, tasks: Collection[Task]) -> bool:
        """Whether all of these tasks have ended well. False if the files cannot be read: it is asked again soon.

        Raises:
          MillraceError: one of them has failed, and was not started again.
        """
        try:
            written = set(storage.listdir(self._folder))
            codes = {task: self._read(task) for task in tasks if f"{task}.json" in written}
        except MillraceError:  # also if a task is started again just now, and has removed its file
            return False
        now = time.monotonic()
        self._failed = {task: self._failed.get(task, now) for task, code in codes.items() if code}
        for task, since in self._failed.items():
            if now - since >= RESTART_SECONDS:
                raise MillraceError(
                    f"{task}: ended with exit code {codes[task]}, and was not started again for {RESTART_SECONDS:.0f} "
                    "s, so this process ends, too; its own log says why it failed"
                )
        return all(codes.get(task) == 0 for task in tasks)

    def _read(self, task: Task) -> int:
        return int(parse_json(storage.read_bytes(self._path(task)))["exit_code"])

    def _path(self, task: Task) -> str:
        return storage.join(self._folder, f"{task}.json")
