"""Datasets to run a job on, to read, and to replay rejects into."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import OpenDataset
from tests.support.datasets import Folder, folder_of_people, write_rejecting
from tests.support.forking import Forking
from tests.support.people import LEAN_SCHEMA, MEASURED_SCHEMA, SCHEMA

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def people(tmp_path: Path) -> Folder:
    """500 valid rows and a schema of which nothing is measured: no job is quicker."""
    return folder_of_people(tmp_path, LEAN_SCHEMA)


@pytest.fixture
def measured(tmp_path: Path) -> Folder:
    """500 valid rows and a schema for which the train split is read first."""
    return folder_of_people(tmp_path, MEASURED_SCHEMA)


@pytest.fixture(scope="session")
def people_once(share) -> Folder:
    """`people`, run once. Not to be changed."""
    return Folder(share("people_once", lambda folder: folder_of_people(folder, LEAN_SCHEMA).run()))


@pytest.fixture
def written(people: Folder, people_once: Folder) -> Folder:
    """`people`, of which the dataset is there: a copy for each test."""
    shutil.copytree(people_once.output, people.output)
    return people


@pytest.fixture(scope="session")
def all_kinds(share_dataset) -> OpenDataset:
    """The dataset of 500 rows with every kind of feature, written once. Not to be changed."""
    return share_dataset("all_kinds", lambda folder: folder_of_people(folder, SCHEMA).run())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="session")
def shared_rejecting(share) -> tuple[Folder, OpenDataset]:
    """40 rows, of which 4 are rejected, written once. Not to be changed."""
    folder = Folder(share("rejecting", write_rejecting))
    return folder, folder.dataset


@pytest.fixture
def rejecting(folder: Folder, shared_rejecting: tuple[Folder, OpenDataset]) -> OpenDataset:
    """40 rows, of which 4 are rejected: a copy of its own for each test."""
    shutil.copytree(shared_rejecting[0].output, folder.output)
    return folder.dataset


@pytest.fixture(scope="session")
def run_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs jobs side by side, each in a process of its own; see `forking`."""
    temp = str(tmp_path_factory.mktemp("tmp"))  # a killed process leaves its libraries' temporary files
    with Forking("tensorflow", "beam_jobs.records.result", environment={"TMPDIR": temp}) as forking:
        yield forking.run
