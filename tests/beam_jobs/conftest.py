"""Datasets to run a job on, to read, and to replay rejects into."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import Dataset, open_dataset
from tests.support.built_once import built_once
from tests.support.forking import Forking
from tests.support.people import LEAN_SCHEMA, MEASURED_SCHEMA, SCHEMA, Job, make_job
from tests.support.replaying import Folder, write_rejecting

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def people(tmp_path: Path) -> Job:
    """500 valid rows and a schema of which nothing is measured: no job is quicker."""
    return make_job(tmp_path, LEAN_SCHEMA)


@pytest.fixture
def measured(tmp_path: Path) -> Job:
    """500 valid rows and a schema for which the train split is read first."""
    return make_job(tmp_path, MEASURED_SCHEMA)


@pytest.fixture(scope="session")
def people_once(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """`people`, run once. Not to be changed."""
    job = make_job(tmp_path_factory.mktemp("people"), LEAN_SCHEMA)
    job.run()
    return job


@pytest.fixture
def written(people: Job, people_once: Job) -> Job:
    """`people`, of which the dataset is there: a copy for each test."""
    shutil.copytree(people_once.output, people.output)
    return people


@pytest.fixture(scope="session")
def all_kinds(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The dataset of 500 rows with every kind of feature, written once. Not to be changed."""
    folder = built_once(tmp_path_factory, "all_kinds", lambda folder: make_job(folder, SCHEMA).run())
    return open_dataset(str(folder / "out"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="session")
def shared_rejecting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, Dataset]:
    """40 rows, of which 4 are rejected, written once. Not to be changed."""
    folder = Folder(built_once(tmp_path_factory, "rejecting", write_rejecting))
    return folder, open_dataset(folder.output)


@pytest.fixture
def rejecting(folder: Folder, shared_rejecting: tuple[Folder, Dataset]) -> Dataset:
    """40 rows, of which 4 are rejected: a copy of its own for each test."""
    shutil.copytree(shared_rejecting[0].output, folder.output)
    return open_dataset(folder.output)


@pytest.fixture(scope="session")
def run_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs jobs side by side, each in a process of its own; see `forking`."""
    temp = str(tmp_path_factory.mktemp("tmp"))  # a killed process leaves its libraries' temporary files
    with Forking("tensorflow", "beam_jobs.records.result", environment={"TMPDIR": temp}) as forking:
        yield forking.run
