"""Ctrl-C: nothing is left that could be taken for a dataset."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from schemas.dataset import layout
from tests.support.people import Job, people_csv


@pytest.mark.slow
def test_an_interrupted_job_leaves_nothing_behind(measured: Job) -> None:
    measured.raw.write_text(people_csv(50_000))
    arguments = ["--schema", str(measured.schema), "--input", str(measured.raw), "--output", str(measured.output)]
    job = subprocess.Popen(
        [sys.executable, "-m", "beam_jobs.preprocess", *arguments, "--range_mb", "0.05"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs tests in the background has its children ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - calls no more
    )
    try:
        deadline = time.monotonic() + 300
        while not list(measured.output.glob("*/staging/tft/decoded-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        _, printed = job.communicate(timeout=300)
    finally:
        job.kill()
    assert job.returncode == 130, printed
    assert "interrupted; nothing was committed" in printed
    assert not (measured.output / layout.MANIFEST).exists()
    assert list(measured.output.iterdir()) == []
