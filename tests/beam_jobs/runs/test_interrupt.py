"""Ctrl-C: nothing is left that could be taken for a dataset."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.core import progress
from schemas.dataset import layout
from schemas.interrupts import interruptible
from tests.support.people import Job, people_csv
from tests.support.processes import InterruptedAndSilent, until


def interrupted_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """A preprocessing_fn that is interrupted whenever it is traced."""
    InterruptedAndSilent()
    return {"age": inputs["age"], "y": inputs["age"]}


@pytest.mark.slow
def test_an_interrupted_job_leaves_nothing_behind(measured: Job) -> None:
    header, rows = people_csv(500).split("\n", 1)
    measured.raw.write_text(header + "\n" + 150 * rows)
    arguments = ["--schema", str(measured.schema), "--input", str(measured.raw), "--output", str(measured.output)]
    job = subprocess.Popen(
        [sys.executable, "-m", "beam_jobs.preprocess", *arguments, "--range_mb", "0.05"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: bool(list(measured.output.glob("*/staging/tft/decoded-*"))), "the job begins to read")
        job.send_signal(signal.SIGINT)
        _, printed = job.communicate(timeout=300)
    finally:
        job.kill()
    assert job.returncode == 130, printed
    assert "interrupted; nothing was committed" in printed
    assert not (measured.output / layout.MANIFEST).exists()
    assert list(measured.output.iterdir()) == []


@pytest.mark.slow
def test_an_interrupt_that_tf_transforms_tracing_drops_still_ends_the_job(people: Job) -> None:
    arguments = ["--schema", str(people.schema), "--input", str(people.raw), "--output", str(people.output)]
    job = subprocess.run(
        [sys.executable, "-m", "beam_jobs.preprocess", *arguments, "--preprocessing_fn", f"{__name__}:interrupted_fn"],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert job.returncode == 130, job.stderr
    assert "interrupted; nothing was committed" in job.stderr
    assert list(people.output.iterdir()) == []


@pytest.mark.parametrize("step", [lambda: progress.enter("reading"), lambda: progress.add(read=0)])
def test_the_next_step_of_a_job_raises_a_dropped_interrupt(step):
    @interruptible()
    def job() -> None:
        InterruptedAndSilent()
        step()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background have none
    try:
        with pytest.raises(KeyboardInterrupt):
            job()
    finally:
        signal.signal(signal.SIGINT, before)
    step()  # of another job
