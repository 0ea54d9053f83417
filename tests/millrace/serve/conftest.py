"""What is served: the trainer's models, and an export that adds its version to a number."""

import pytest

from tests.support.exports import write_export
from tests.support.model_server import Client, serving
from tests.trainer.conftest import (  # noqa: F401 - fixtures
    make_estimator,
    patterns,
    patterns_model,
    people,
    people_csv,
    people_estimator,
    people_export,
    stripes,
    stripes_model,
)


@pytest.fixture(scope="session")
def export(tmp_path_factory):
    """Not to be changed."""
    return write_export(tmp_path_factory.mktemp("exports"), 1)


@pytest.fixture(scope="session")
def default(export):
    """A server of the default options."""
    with serving(export) as server:
        yield server


@pytest.fixture
def client(default):
    with Client(default) as client:
        yield client
