"""Commands that refuse at once: no library is imported before what is asked has been judged."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 1.5


def assert_told_at_once(module: str, argv: Sequence[str], *, code: int, message: str) -> None:
    """Runs a command that ends with `code` and says `message`, in less than `SECONDS` of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", module, *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # a busy machine is no slow start
    assert (done.returncode, message in done.stdout + done.stderr) == (code, True), done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS
