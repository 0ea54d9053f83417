"""Checks that commands answer before a library is imported that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"tensorflow", "tensorflow_estimator", "tensorflow_transform", "tf_keras", "tfx_bsl", "apache_beam"}
HEAVY |= {"matplotlib", "jinja2", "tensorboard", "sklearn"}
IMPORTED = "import time:"


def assert_light(module: str, argv: Sequence[str], *, code: int, message: str) -> None:
    """Runs a command that prints `message` and exits with `code`, and asserts that it imports none of `HEAVY`."""
    command = [sys.executable, "-X", "importtime", "-m", module, *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    printed = done.stdout + "".join(f"{line}\n" for line in lines if not line.startswith(IMPORTED))
    assert (done.returncode, message in printed) == (code, True), printed
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith(IMPORTED)}
    assert {module.partition(".")[0], "argparse"} <= imported
    assert imported & HEAVY == set()
