"""Trainings that can be killed, in processes that start at once, forked from one that has imported TensorFlow.

    python -m tests.support.forking_trainer

Reads requests from standard input, one JSON object per line: `argv` of `trainer.task`; `log`, the file for its output;
`kill_after`, a number of seconds or null, and the `signal` to kill it with; `disk_bytes`, or null: the size of a
separate disk that is mounted on the model directory, whose files are then copied to `copy_to`. Answers each request
with the exit status, negative for the signal that ended the process, and the seconds that it took.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
NO_DISK = 77  # the status of a child that may not mount a disk


class Forking:
    """The process that forks, as a context: call it to run `trainer.task`, and get the exit status."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking_trainer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.seconds = 0.0  # that the last one took

    def __call__(self, argv: list[str], *, log: Path, **request: Any) -> int:
        request = {"kill_after": None, "signal": None, "disk_bytes": None, "copy_to": None, **request}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": argv, "log": str(log), **request}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.seconds = float(answer["seconds"])
        return int(answer["status"])

    def __enter__(self) -> Forking:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def main() -> None:
    from schemas.libraries import quick_import

    quick_import("trainer.loop.train", "trainer.model_dir.checkpoints", "trainer.task")  # once for all children

    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Forks a training, kills it after `kill_after`, and waits until it has ended."""
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = train(request)
        finally:
            os._exit(status)
    deadline = None if request["kill_after"] is None else begun + request["kill_after"]
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return {"status": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - begun}
        if deadline is not None and time.monotonic() >= deadline:
            os.kill(child, request["signal"])
            deadline = None
        time.sleep(0.005)


def train(request: dict[str, Any]) -> int:
    """In the child: `trainer.task` with its output in the log."""
    from trainer import task

    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if request["disk_bytes"] is None:
        return task.main(request["argv"])
    model_dir = request["argv"][request["argv"].index("--model_dir") + 1]
    if not mount_disk(model_dir, request["disk_bytes"]):
        return NO_DISK
    shutil.copytree(request["copy_to"], model_dir, dirs_exist_ok=True)
    status = task.main(request["argv"])
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(request["copy_to"])
    shutil.copytree(model_dir, request["copy_to"])
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


if __name__ == "__main__":
    main()
