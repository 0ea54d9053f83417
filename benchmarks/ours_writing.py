"""This project's job as a measured process, with all its checks, checksums and the commit."""

from __future__ import annotations

from pathlib import Path

from beam_jobs.core.options import JobOptions
from beam_jobs.runs.job import run_job
from beam_jobs.runs.run import load_libraries
from benchmarks.task import Task

load_libraries()


def write_csv(task: Task) -> None:
    """Runs the job on a CSV file, with the schema file next to it."""
    schema = str(Path(task.source).with_suffix(".yaml"))
    run_job(JobOptions(schema=schema, input=(task.source,), output=task.output, quiet=True))


def write_alone(task: Task) -> None:
    """The same in one process."""
    schema = str(Path(task.source).with_suffix(".yaml"))
    run_job(JobOptions(schema=schema, input=(task.source,), output=task.output, quiet=True, workers=1))


def write_unguarded(task: Task) -> None:
    """A job as in `write_csv`, without statistics, drift and leakage."""
    schema = str(Path(task.source).with_suffix(".yaml"))
    run_job(
        JobOptions(schema=schema, input=(task.source,), output=task.output, quiet=True, statistics=False, leakage=False)
    )


def write_images(task: Task) -> None:
    """Runs the job on a folder of class folders of images, with the schema file next to it."""
    schema = f"{task.source}.yaml"
    run_job(JobOptions(schema=schema, input=(f"{task.source}/*/*",), output=task.output, quiet=True))
