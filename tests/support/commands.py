"""Runs the preprocessing command in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.support.prism import ROOT

SECONDS = 300  # only a hang reaches this limit
_OF_LIBRARIES = re.compile(r"[A-Z]\d{4} |WARNING: All log messages before absl")


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
