"""Folders on disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.storage import gcs
from tests.support import gcs_emulator


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket."""
    with gcs_emulator.running() as host:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "none")  # else the client asks for one, off this machine
        gcs.client.cache_clear()
        yield "gs://b"
        gcs.client.cache_clear()


@pytest.fixture(params=["local", "gcs"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder, on disk and in a bucket."""
    parent = str(tmp_path) if request.param == "local" else request.getfixturevalue("bucket")
    return f"{parent}/out"
