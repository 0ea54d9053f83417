"""The server answers with the trainer's models."""

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
