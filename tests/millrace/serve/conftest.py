"""What is served: the trainer's models, and an export that adds its version to a number."""

import pytest

from tests.support.small_exports import write_export
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
