"""The shell of the cloud's tutorial: gs:// works in it, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import cloud
from tools import bucket_shell

ROOT = Path(__file__).parents[2]
PATIENCE = 600  # seconds, which only a hang takes


def opened(folder: Path) -> subprocess.Popen[str]:
    """The shell, all temporary files of which are in `folder`; commands are typed to its standard input."""
    return subprocess.Popen(
        [sys.executable, "-m", "tools.bucket_shell"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def servers_below(folder: Path) -> list[str]:
    """The command lines of the servers whose temporary files are in a folder."""
    lines = [path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [line for line in lines if "fake-gcs-server" in line and str(folder) in line]


def test_commands_read_and_write_the_bucket_and_nothing_is_left(tmp_path: Path) -> None:
    with opened(tmp_path) as process:
        samples = f"{sys.executable} -m schemas.samples titanic gs://demo/raw.csv --rows 20"
        printed, _ = process.communicate(f"{samples}\nexit 3\n", timeout=PATIENCE)
    assert process.returncode == 3, printed
    assert "gs://demo/raw.csv: 20 synthetic rows" in printed
    assert (servers_below(tmp_path), list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_shell_ends_its_server(tmp_path: Path, number: int, code: int) -> None:
    with opened(tmp_path) as process:
        for line in process.stdout or ():
            if line.startswith("In this shell"):
                break
        process.send_signal(number)
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, printed
    assert "Traceback" not in printed
    assert (servers_below(tmp_path), list(tmp_path.iterdir())) == ([], [])


def test_without_its_server_it_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cloud, "BINARY", Path("nowhere/server"))
    assert bucket_shell.main() == 2
    assert "nowhere/server: missing; run make cloud-tools" in capsys.readouterr().err
