"""Datasets by the job, as tests write and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beam_jobs.core.options import JobOptions
from beam_jobs.runs.job import run_job
from schemas.dataset import Dataset, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.storage import folders, s3


def written(folder: Path, schema: str, *inputs: str, output: str | None = None, **changes: Any) -> Dataset:
    """Runs a job, and opens what it has written.

    Args:
      folder: where `schema.yaml` is written.
      schema: a schema file's text.
      inputs: patterns.
      output: None: `out` in the folder.
      changes: other options of the job; it is quiet by default.
    """
    (folder / "schema.yaml").write_text(schema)
    output = output or str(folder / "out")
    run_job(JobOptions(str(folder / "schema.yaml"), inputs, output, **{"quiet": True, **changes}))
    return open_dataset(output)


def readable(dataset: Dataset, folder: Path) -> Dataset:
    """The dataset, or a copy on local disk where TensorFlow cannot read its store."""
    if not dataset.path.startswith(s3.PREFIX):
        return dataset
    folders.copy(dataset.path, str(folder / "copy"))
    return open_dataset(str(folder / "copy"))


def assert_same(there: Dataset, here: Dataset, folder: Path) -> None:
    """Asserts that two datasets have the same records, and that the first is valid."""
    from tests.support.written_records import records

    copy = readable(there, folder)
    assert there.splits == here.splits
    for split in here.splits:
        assert records(copy, split) == records(here, split)
    assert there.manifest.rejected == here.manifest.rejected
    assert verify_dataset(there.path) == verify_dataset(copy.path) == []
