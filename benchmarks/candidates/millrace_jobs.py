"""Millrace's job, with all its checks, checksums and the commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beam_jobs.core.options import JobOptions
from beam_jobs.runs.job import run_job
from beam_jobs.runs.run import load_libraries
from benchmarks.measure import BenchmarkTask

load_libraries()


def write_csv(task: BenchmarkTask, **options: Any) -> None:
    """Runs the job on a CSV file, with the schema file next to it and further `JobOptions`."""
    schema = str(Path(task.source).with_suffix(".yaml"))
    run_job(JobOptions(schema=schema, input=(task.source,), output=task.output, quiet=True, **options))


def write_photos(task: BenchmarkTask, downscale: int | None = None) -> None:
    """Runs the job on a folder of class folders, with the schema file next to it.

    Args:
      downscale: large JPEGs are decoded at so many times the new size or more; None: the schema's default.
    """
    schema = Path(f"{task.source}.yaml")
    if downscale is not None:
        text = schema.read_text(encoding="utf-8")
        schema = Path(f"{task.source}.{downscale}.yaml")
        schema.write_text(text.replace("images: {", f"images: {{downscale: {downscale}, "), encoding="utf-8")
    run_job(JobOptions(schema=str(schema), input=(f"{task.source}/*/*",), output=task.output, quiet=True))
