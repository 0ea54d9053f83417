"""What every test shares: the libraries' settings, and the real data where there is some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before anything imports TensorFlow: Estimator needs the legacy Keras, and the log's chatter hides what failed.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

REAL_DATA = "MILLRACE_TEST_DATA"


def pytest_report_header() -> str:
    folder = os.environ.get(REAL_DATA)
    return f"real data: {folder}" if folder else f"real data: {REAL_DATA} is unset; the tests on real data are left out"


def pytest_configure() -> None:
    folder = os.environ.get(REAL_DATA)
    if folder and not Path(folder).is_dir():
        raise pytest.UsageError(f"{REAL_DATA} names {folder!r}, which is no folder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that need the real data where there is none."""
    if os.environ.get(REAL_DATA):
        return
    left_out = [item for item in items if "real_data" in getattr(item, "fixturenames", ())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data; a test that asks for it runs only where MILLRACE_TEST_DATA names one."""
    return Path(os.environ[REAL_DATA]).resolve()
