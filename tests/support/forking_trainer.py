"""Trainings that can be killed, in processes that start at once, or on a disk that is too small."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal as signals
import subprocess
from pathlib import Path
from typing import Any

from tests.support import forking

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
NO_DISK = 77  # the status of a child that may not mount a disk


class Forking(forking.Forking):
    """The process that forks, as a context: call it to run `trainer.task`, and get the exit status."""

    def __init__(self) -> None:
        super().__init__("trainer.loop.train", "trainer.model_dir.checkpoints", "trainer.task", quiet=True)
        self.seconds = 0.0  # that the last one took

    def __call__(
        self,
        argv: list[str],
        *,
        log: Path,
        kill_after: float | None = None,
        signal: int = signals.SIGKILL,
        disk_bytes: int | None = None,
        copy_to: str = "",
    ) -> int:
        """Runs a training.

        Args:
          argv: of `trainer.task`.
          log: the file that its output is added to.
          kill_after: seconds until it is sent the signal.
          signal: the signal.
          disk_bytes: the size of a disk that is mounted on its model directory, as `copy_to` was, which then holds it.
          copy_to: a folder.
        """
        request: dict[str, Any] = {"argv": argv, "program": "trainer.task"}
        if disk_bytes is not None:
            request = {"argv": [str(disk_bytes), copy_to, *argv], "program": __name__}
        if kill_after is not None:
            request["signals"] = [(kill_after, signal)]
        (report,) = self.run(request)
        with log.open("a") as file:
            file.write(report["stderr"])
        self.seconds = float(report["seconds"])
        return int(report["status"])


def main(argv: list[str]) -> int:
    """In the child: `trainer.task` behind the size of its disk and the folder that is copied to it and from it."""
    from trainer import task

    size, copy_to, *argv = argv
    model_dir = argv[argv.index("--model_dir") + 1]
    if not mount_disk(model_dir, int(size)):
        return NO_DISK
    shutil.copytree(copy_to, model_dir, dirs_exist_ok=True)
    status = task.main(argv)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(copy_to)
    shutil.copytree(model_dir, copy_to)
    return status


def mount_disk(folder: str, size: int) -> bool:
    """Mounts a disk of `size` bytes that only this process sees; returns whether the system allows it."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0 and not be_root_of_a_namespace():
        return False
    os.makedirs(folder, exist_ok=True)
    private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder]
    return private.returncode == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0


def be_root_of_a_namespace() -> bool:
    """Becomes root in a new user namespace, where it may mount; returns whether the system allows it."""
    maps = {"setgroups": "deny", "uid_map": f"0 {os.getuid()} 1", "gid_map": f"0 {os.getgid()} 1"}
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        return False
    try:
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text)
    except OSError:
        return False
    return True
