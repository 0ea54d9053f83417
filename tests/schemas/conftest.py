"""Folders on disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import storage
from tests.schemas import gcs_emulator


@pytest.fixture(params=["local", "gcs"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty folder, on disk and in a bucket."""
    if request.param == "local":
        yield str(tmp_path / "out")
        return
    with gcs_emulator.running() as host:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
        storage._client.cache_clear()
        yield "gs://b/out"
        storage._client.cache_clear()
