"""A bucket for each test of this folder. All of them are marked `cloud`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import storage
from tests.support import cloud as clouds
from tests.support import datasets, vertex_service
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.vertex_service import VertexService

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("cloud")


@pytest.fixture
def cloud(running_cloud: clouds.Cloud) -> Iterator[clouds.Cloud]:
    """The same, without faults but those that the test sets."""
    running_cloud.inject()
    yield running_cloud
    running_cloud.inject()
    running_cloud.log_in(checked=False, read_only=False, refused=False, expires_in=3600)


@pytest.fixture
def bucket(cloud: clouds.Cloud) -> str:
    """The address of an empty bucket."""
    return cloud.new_bucket()


@pytest.fixture(scope="session")
def vertex(running_cloud: clouds.Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VertexService]:
    """Vertex AI, whose machines read and write the buckets of `running_cloud`."""
    with vertex_service.running(tmp_path_factory.mktemp("vertex")) as service:
        yield service


@pytest.fixture(scope="session")
def data(running_cloud: clouds.Cloud, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bucket with a small dataset in `data`, of `raw.csv`, which tests only read."""
    folder, bucket = tmp_path_factory.mktemp("people"), running_cloud.new_bucket()
    storage.write_bytes(f"{bucket}/raw.csv", people_csv(400).encode())
    datasets.written(folder, LEAN_SCHEMA, f"{bucket}/raw.csv", output=f"{bucket}/data", num_shards=2)
    return bucket
