"""`make demo-cloud`, on a few rows: every step runs, and nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import until

ROOT = Path(__file__).parents[2]
STEPS = ["schemas.samples", "beam_jobs.preprocess", "schemas.dataset", "trainer.task", "trainer.predict"]
PATIENCE = 1800  # seconds, which only a hang takes


@contextlib.contextmanager
def demo(folder: Path, *args: str, module: str = "tools.demo_cloud") -> Iterator[subprocess.Popen[str]]:
    """The demo on 300 rows, all temporary files of which are in `folder`."""
    command = [sys.executable, "-m", module, "--rows", "300", "--steps", "20", *args]
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def running_below(folder: Path) -> list[str]:
    """The command lines of the processes whose temporary files are in a folder, or in a folder below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def assert_nothing_is_left(folder: Path) -> None:
    until(lambda: running_below(folder) == [], "all processes end")  # workers look every second whether they must
    assert list(folder.iterdir()) == []


def test_the_demo_goes_from_raw_rows_to_predictions_in_a_bucket(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, printed
    assert re.findall(r"^\$ \S+ -m (\S+)", printed, re.MULTILINE) == STEPS
    commands = [line for line in printed.splitlines() if line.startswith("$ ")]
    assert all("gs://demo/" in command for command in commands)
    assert "--runner PrismRunner" in commands[1]
    after_the_last_step = printed.rpartition("\n$ ")[2]
    predictions = [json.loads(line) for line in after_the_last_step.splitlines() if line.startswith("{")]
    assert [prediction["source"] for prediction in predictions] == ["gs://demo/raw/sample.csv"] * 2
    assert re.search(r"^  predictions\.jsonl +300 lines", printed, re.MULTILINE)
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_demo_ends_its_servers_and_the_engine(tmp_path: Path, number: int, code: int) -> None:
    with demo(tmp_path) as process:

        def engine_runs() -> bool:
            assert process.poll() is None, process.communicate()[0]
            return any(command.startswith(".cloud/bin/prism ") for command in running_below(tmp_path))

        until(engine_runs, "the engine starts")
        process.send_signal(number)
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, printed
    assert "Traceback" not in printed
    assert_nothing_is_left(tmp_path)


def test_a_step_that_fails_ends_the_demo_and_is_named(tmp_path: Path) -> None:
    with demo(tmp_path, "--prism", "/bin/false") as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, printed
    assert re.search(r"^error: this step ended with exit code 1: .*beam_jobs\.preprocess", printed, re.MULTILINE)
    assert "trainer.task" not in printed
    assert_nothing_is_left(tmp_path)


def test_without_its_servers_the_demo_says_how_to_build_them(tmp_path: Path) -> None:
    with demo(tmp_path, "--prism", "nowhere/prism") as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, printed
    assert "nowhere/prism: missing; run make cloud-tools" in printed
