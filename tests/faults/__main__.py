"""Puts each fault of `faults.yaml` into a copy of the code, and says which test fails.

    python -m tests.faults [--only NAME ...]

Each fault is an edit: a text that stands once in a file, and what takes its place. The tests named beside it must fail
with the edit; that they pass without it is what `make test` shows. One that does not fail has lost an assertion. Exit
code 1: a fault was not found, or its text is gone.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "beam_jobs", "trainer", "millrace", "tests", "benchmarks", "tools", "docs")


@dataclasses.dataclass(frozen=True)
class Fault:
    """An edit that breaks a guarantee, and the tests of which at least one must fail with it."""

    name: str
    guarantee: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Edits the file below `root`.

        Raises:
            ValueError: the text does not stand there exactly once.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise ValueError(f"{self.file}: holds the text of {self.name} {text.count(self.find)} times, expected once")
        path.write_text(text.replace(self.find, self.put), encoding="utf-8")


def load() -> list[Fault]:
    """The faults in the order of the file."""
    rows = yaml.safe_load((Path(__file__).parent / "faults.yaml").read_text(encoding="utf-8"))
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def try_fault(fault: Fault) -> tuple[bool, str]:
    """Whether a test fails with the fault, and the last line that pytest prints of it."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        for name in PACKAGES:
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "constraints.txt", "setup.py"):
            shutil.copy(ROOT / name, folder)
        try:
            fault.apply(Path(folder))
        except ValueError as error:
            return False, str(error)
        # Not the installed package but the copy, in the processes that tests start too.
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", *fault.tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        found = ran.returncode < 0 or (ran.returncode == 1 and bool(lines))  # a crash is a failure
        return found, (lines or ran.stdout.splitlines() or [ran.stderr[-300:]])[-1]


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try these")
    names = parser.parse_args().only
    missed = 0
    for fault in load():
        if names is None or fault.name in names:
            found, line = try_fault(fault)
            missed += not found
            print(f"{'found ' if found else 'MISSED'} {fault.name}: {line[:200]}", flush=True)
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
