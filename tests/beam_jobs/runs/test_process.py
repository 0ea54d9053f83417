"""What a job's process does: it imports what it needs, names a disk that is full, and leaves nothing after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from beam_jobs.core import progress
from beam_jobs.runs.run import NewRun, new_run
from schemas.errors import MillraceError
from schemas.interrupts import interruptible
from schemas.samples.tables import write_sample
from tests.support.commands import run_program
from tests.support.datasets import Folder
from tests.support.people import people_csv
from tests.support.processes import InterruptedAndSilent, until

ROOT = Path(__file__).parents[3]
PREPROCESS = [sys.executable, "-m", "beam_jobs.preprocess"]
LIMITED = """
import resource, runpy, sys
room = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
runpy.run_module("beam_jobs.preprocess", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    write_sample("covertype", str(path), rows=12_000, seed=1)
    return path


@pytest.mark.slow
def test_the_job_names_the_file_and_commits_nothing(rows, tmp_path):
    """Each batch has room, and the one shard of them all has not."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "1000000", "--schema", "schemas/covertype.yaml", "--input", str(rows)]
        + ["--output", str(tmp_path / "out"), "--num_shards", "1", "--range_mb", "0.5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "shard-" in last
    assert last.endswith("File too large. Free some space, or use another disk.")
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "out") == []


def interrupted_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """A preprocessing_fn that is interrupted whenever it is traced."""
    InterruptedAndSilent()
    return {"age": inputs["age"], "y": inputs["age"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [("2*", signal.SIGTERM, 143), ("2*/staging/tft/decoded-*", signal.SIGINT, 130)],
    ids=["while it imports TensorFlow", "while it reads"],
)
def test_a_job_that_a_signal_ends_leaves_nothing_behind(measured: Folder, moment: str, number: int, code: int) -> None:
    header, rows = people_csv(500).split("\n", 1)
    measured.raw.write_text(header + "\n" + 150 * rows)
    job = subprocess.Popen(
        [*PREPROCESS, *measured.argv("--range_mb", "0.05")],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: any(measured.output.glob(moment)), "the job is where it is to end")
        job.send_signal(number)
        _, printed = job.communicate(timeout=300)
    finally:
        job.kill()
    assert job.returncode == code, printed
    assert f"{'interrupted' if code == 130 else 'terminated'}; nothing was committed" in printed
    assert list(measured.output.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MillraceError])
def test_the_folder_of_a_run_that_fails_before_it_is_written_is_removed(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def fail(run: NewRun) -> NoReturn:
        Path(run.staging, "tft").mkdir(parents=True)
        raise error

    with pytest.raises(error), new_run(str(tmp_path)) as run:
        fail(run)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interrupt_that_tf_transforms_tracing_drops_still_ends_the_job(people: Folder) -> None:
    job = subprocess.run(
        [*PREPROCESS, *people.argv("--preprocessing_fn", f"{__name__}:interrupted_fn")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert job.returncode == 130, job.stderr
    assert "interrupted; nothing was committed" in job.stderr
    assert list(people.output.iterdir()) == []


@pytest.mark.parametrize("step", [lambda: progress.JOB.enter("reading"), lambda: progress.JOB.add(read=0)])
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


STARTED = """
import gc, os, sys
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
del os.environ["TF_USE_LEGACY_KERAS"]
{start}(verbose={verbose})
import tensorflow as tf
assert gc.isenabled() and gc.get_freeze_count() > 100_000, gc.get_freeze_count()
assert "tf_keras" in sys.modules and "keras" not in sys.modules
print(os.environ["TF_CPP_MIN_LOG_LEVEL"], tf.get_logger().isEnabledFor(20))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "verbose", "log"),
    [
        ("from beam_jobs.runs.job import load_libraries as start; start", False, "3 False"),
        ("from trainer.start import start_tensorflow as start; start", True, "0 True"),
    ],
)
def test_a_start_spares_the_collector_imports_one_keras_and_logs_only_with_verbose(
    start: str, verbose: bool, log: str
) -> None:
    no_gpu = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}  # else errors are logged, too
    done = run_program(STARTED.format(start=start, verbose=verbose), env=no_gpu)
    assert (done.stdout.strip(), bool(done.stderr)) == (log, verbose)
