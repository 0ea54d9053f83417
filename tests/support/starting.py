"""Commands whose start of TensorFlow writes what a real one writes, and ends as a test asks; it is not imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# What a start of TensorFlow writes, and one line that is not its own.
LOGGED = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795425733.277951   16539 cudart_stub.cc:31] Could not find cuda drivers on your machine.
2026-11-23 09:14:52.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized.
To enable the following instructions: AVX2, in other operations, rebuild TensorFlow with the appropriate compiler flags.
E0000 00:00:1795425831.448485   18222 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: UNKNOWN (303)
"""
OTHER = "a library of ours speaks\nE0000 is how errors begin\n"
HELD = f"held\n{LOGGED}{OTHER}"

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
    """Asserts that a command holds back what its start writes, and that an abort prints all of it."""
    done = run_started(argv, "os.abort()", folder)
    assert "OPEN" not in done.stderr
    assert HELD in done.stderr
    assert done.returncode == -signal.SIGABRT  # 134 in a shell
