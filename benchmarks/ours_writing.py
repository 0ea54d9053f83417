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


def write_images(task: Task) -> None:
    """Runs the job on a folder of class folders of images, with the schema file next to it."""
    _write_images(task, f"{task.source}.yaml")


def write_images_least(task: Task) -> None:
    """The same, its large JPEGs decoded at the new size or more, as Pillow and its users do."""
    text = Path(f"{task.source}.yaml").read_text(encoding="utf-8")
    schema = Path(f"{task.source}.least.yaml")
    schema.write_text(text.replace("images: {", "images: {downscale: 1, "), encoding="utf-8")
    _write_images(task, str(schema))


def _write_images(task: Task, schema: str) -> None:
    run_job(JobOptions(schema=schema, input=(f"{task.source}/*/*",), output=task.output, quiet=True))
