"""Commands, in this process or one of their own: what they import, print and hold back, and how they end."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 300  # only a hang reaches this limit
_OF_LIBRARIES = re.compile(r"[A-Z]\d{4} |WARNING: All log messages before absl")
# Memory that is freed stays resident in an arena of the allocator, of which there is one for each thread.
FEW_ARENAS = {**os.environ, "MALLOC_ARENA_MAX": "4"}


def run_program(code: str, *argv: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs code in a Python of its own, which has to succeed; what it prints is caught."""
    settings = {"cwd": ROOT, "timeout": SECONDS, **settings}
    command = [sys.executable, "-c", code, *map(str, argv)]
    return subprocess.run(command, check=True, capture_output=True, text=True, **settings)


def start(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
    """Starts `python -m beam_jobs.preprocess`, with its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "beam_jobs.preprocess", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def end(process: subprocess.Popen[str], meanwhile: Callable[[], None] = lambda: None) -> tuple[int, list[str]]:
    """Waits for the command.

    Args:
      process: the command.
      meanwhile: called first, while it runs.

    Returns:
      Its exit code, and what it printed on standard error, without the log of the libraries' C++ code.
    """
    try:
        meanwhile()
        _, printed = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    return process.returncode, [line for line in printed.splitlines() if not _OF_LIBRARIES.match(line)]


def run(*arguments: str) -> tuple[int, list[str]]:
    """Runs the command to its end; returns what `end` does."""
    return end(start(*arguments))


HEAVY = {"tensorflow", "tensorflow_estimator", "tensorflow_transform", "tf_keras", "tfx_bsl", "apache_beam"}
HEAVY |= {"jinja2", "tensorboard", "sklearn"}
IMPORTED = "import time:"


def assert_light(module: str, argv: Sequence[str], *, code: int, message: str) -> None:
    """Runs a command that prints `message` and exits with `code`, and asserts that it imports none of `HEAVY`."""
    command = [sys.executable, "-X", "importtime", "-m", module, *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    printed = done.stdout + "".join(f"{line}\n" for line in lines if not line.startswith(IMPORTED))
    assert (done.returncode, message in printed) == (code, True), printed
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith(IMPORTED)}
    assert {module.partition(".")[0], "cyclopts"} <= imported
    assert imported & HEAVY == set()


# What a start of TensorFlow writes, and one line that is not its own.
LOGGED = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795425733.277951   16539 cudart_stub.cc:31] Could not find cuda drivers on your machine.
2026-11-23 09:14:52.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized.
To enable the following instructions: AVX2, in other operations, rebuild TensorFlow with the appropriate compiler flags.
E0000 00:00:1795425831.448485   18222 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: UNKNOWN (303)
"""
OTHER = "a library of ours speaks\nE0000 is how errors begin\n"
HELD = f"held\n{OTHER}"

# Runs before a command, in its process. TensorFlow's first import says whether standard error is held back, writes what
# a start writes, and ends as the test asks.
BEFORE = """
import os, signal, sys
AS_IT_WAS = os.fstat(2)

class Importing:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            held = not os.path.samestat(AS_IT_WAS, os.fstat(2))
            os.write(2, b"held\\n" if held else b"OPEN\\n")
            os.write(2, os.environ["WRITTEN"].encode())
            exec(compile(os.environ["ENDS"], "ends", "exec"))  # of a string it would be Python that ends by SIGINT

sys.meta_path.insert(0, Importing())
"""


def run_started(argv: Sequence[str], ends: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a session of its own.

    Args:
      argv: its module and its arguments.
      ends: a line of Python, which runs where TensorFlow would be imported.
      folder: where it runs.
    """
    (folder / "sitecustomize.py").write_text(BEFORE)
    paths = os.pathsep.join([str(folder), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths, "WRITTEN": LOGGED + OTHER, "ENDS": ends}
    settings: dict[str, Any] = {"cwd": folder, "env": env, "capture_output": True, "text": True, "timeout": 300}
    command = [sys.executable, "-m", *argv]
    return subprocess.run(command, check=False, start_new_session=True, **settings)


def assert_held(argv: Sequence[str], folder: Path) -> None:
    """Asserts that a command's start prints nothing of TensorFlow's log, and all else, before an abort, too."""
    done = run_started(argv, "os.abort()", folder)
    assert "OPEN" not in done.stderr
    assert HELD in done.stderr
    assert done.returncode == -signal.SIGABRT  # 134 in a shell


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object on standard output."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


def ended(main: Any, argv: Any) -> Ended:
    """Runs a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return Ended(code, out.getvalue(), err.getvalue())
