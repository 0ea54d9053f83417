"""Commands that answer at once: no library that takes seconds is imported before what is asked has been judged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"tensorflow", "tensorflow_estimator", "tensorflow_transform", "tf_keras", "tfx_bsl", "apache_beam"}
IMPORTED = "import time:"


def assert_told_at_once(module: str, argv: Sequence[str], *, code: int, message: str) -> None:
    """Runs a command that ends with `code` and says `message`, and imports none of `HEAVY` for it."""
    command = [sys.executable, "-X", "importtime", "-m", module, *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = done.stderr.splitlines()
    said = done.stdout + "".join(f"{line}\n" for line in told if not line.startswith(IMPORTED))
    assert (done.returncode, message in said) == (code, True), said
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in told if line.startswith(IMPORTED)}
    assert {module.partition(".")[0], "argparse"} <= imported
    assert imported & HEAVY == set()
