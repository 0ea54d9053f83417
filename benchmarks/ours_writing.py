"""This project's job as a measured process, with all that it checks: splits, labels, counts, checksums, the commit."""

from __future__ import annotations

from pathlib import Path

from beam_jobs.core.options import JobOptions
from beam_jobs.runtime.job import run_job
from beam_jobs.runtime.new_run import load_libraries
from benchmarks.task import Task

load_libraries()


def write_csv(task: Task) -> None:
    """Writes a CSV file by the schema file that stands beside it."""
    schema = str(Path(task.source).with_suffix(".yaml"))
    run_job(JobOptions(schema=schema, input=(task.source,), output=task.output, quiet=True))


def write_images(task: Task) -> None:
    """Writes the images of a folder of class folders by the schema file that stands beside it."""
    schema = f"{task.source}.yaml"
    run_job(JobOptions(schema=schema, input=(f"{task.source}/*/*",), output=task.output, quiet=True))
