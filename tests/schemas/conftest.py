"""Folders on disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schemas.storage import gcs
from tests.support import gcs_emulator
from tests.support.loopback_service import forget

if TYPE_CHECKING:
    from tests.support.dataset_faults import Written


@pytest.fixture(scope="session")
def people_dataset(share) -> Written:
    """A valid dataset of 500 rows, three shards a split and three rejects. Not to be changed."""
    from tests.support.dataset_faults import write_csv

    return read_back(share("people-dataset", write_csv))


@pytest.fixture(scope="session")
def image_dataset(share) -> Written:
    """A valid dataset of images, stored as raw pixels, and of a reject. Not to be changed."""
    from tests.support.dataset_faults import write_images

    return read_back(share("image-dataset", lambda folder: write_images(folder, "raw")))


def read_back(folder: Path) -> Written:
    from schemas.dataset.manifest import read_manifest
    from tests.support.dataset_faults import Written

    return Written(folder / "out", read_manifest(str(folder / "out")))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket."""
    with gcs_emulator.running() as host:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "none")  # else the client asks for one, off this machine
        forget(gcs.client)
        yield "gs://b"
        forget(gcs.client)


@pytest.fixture(params=["local", "gcs", pytest.param("server", marks=pytest.mark.cloud)])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder: on disk, in a bucket, and in a bucket of a server that others wrote."""
    if request.param == "server":
        return f"{request.getfixturevalue('running_cloud').new_bucket()}/out"
    parent = str(tmp_path) if request.param == "local" else request.getfixturevalue("bucket")
    return f"{parent}/out"
