"""Ctrl-C: nothing is left that could be taken for a dataset."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from schemas.dataset import layout
from tests.support.people import Job, people_csv


def test_an_interrupted_job_leaves_nothing_behind(people: Job) -> None:
    header, rows = people_csv(500).split("\n", 1)
    people.raw.write_text(header + "\n" + 150 * rows)
    arguments = ["--schema", str(people.schema), "--input", str(people.raw), "--output", str(people.output)]
    job = subprocess.Popen(
        [sys.executable, "-m", "beam_jobs.preprocess", *arguments, "--range_mb", "0.05"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs tests in the background has its children ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - calls no more
    )
    try:
        deadline = time.monotonic() + 300
        while not list(people.output.glob("*/staging/tft/decoded-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        _, printed = job.communicate(timeout=300)
    finally:
        job.kill()
    assert job.returncode == 130, printed
    assert "interrupted; nothing was committed" in printed
    assert not (people.output / layout.MANIFEST).exists()
    assert list(people.output.iterdir()) == []
