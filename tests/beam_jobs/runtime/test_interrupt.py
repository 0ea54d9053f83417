"""Ctrl-C: nothing is left that could be taken for a dataset."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.core import interrupts, progress
from schemas.dataset import layout
from tests.support.people import Job, people_csv


class Interrupted:
    """Is interrupted while it is collected, as TensorFlow's functions are; nobody but Python sees the exception."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class InterruptedAndSilent:
    """The same, and ignores the exception by itself, as TensorFlow does."""

    def __del__(self) -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)


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
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert job.returncode == 130, job.stderr
    assert "interrupted; nothing was committed" in job.stderr
    assert list(people.output.iterdir()) == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler, which a shell that runs tests in the background has taken away."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
class TestRemembered:
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("kind", [Interrupted, InterruptedAndSilent])
    @pytest.mark.parametrize(
        "step", [interrupts.check, lambda: progress.enter("reading"), lambda: progress.add(read=0)]
    )
    def test_a_dropped_interrupt_is_raised_by_the_next_step(self, kind, step):
        dropped = []

        @interrupts.remembered()
        def job() -> None:
            kind()
            dropped.append(True)
            step()

        with pytest.raises(KeyboardInterrupt):
            job()
        assert dropped
        step()  # that of another job

    def test_an_error_after_an_interrupt_is_an_interrupt(self):
        @interrupts.remembered()
        def job() -> None:
            InterruptedAndSilent()
            raise ValueError("half a graph")

        with pytest.raises(KeyboardInterrupt) as raised:
            job()
        assert repr(raised.value.__cause__) == "ValueError('half a graph')"

    def test_other_errors_stay_as_they_are(self):
        with pytest.raises(ValueError, match="wrong"), interrupts.remembered():
            raise ValueError("wrong")

    def test_a_handler_that_does_not_raise_interrupts_nothing(self):
        told = []
        signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
        with interrupts.remembered():
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        assert told == [signal.SIGINT]

    def test_the_handler_of_before_is_put_back(self):
        before = signal.getsignal(signal.SIGINT)
        with interrupts.remembered():
            assert signal.getsignal(signal.SIGINT) is not before
        assert signal.getsignal(signal.SIGINT) is before
