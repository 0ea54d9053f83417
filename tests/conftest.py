"""What every test shares: the libraries' settings, and the real data where there is some."""

from __future__ import annotations

import collections
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports TensorFlow: Estimator needs the legacy Keras, and the log's chatter hides what failed.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# How fast the machine is decides nothing. Under CI the examples stay the same ones, as Hypothesis has it.
settings.register_profile(
    "millrace", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("millrace")

REAL_DATA = "MILLRACE_TEST_DATA"


def pytest_report_header() -> str:
    folder = os.environ.get(REAL_DATA)
    return f"real data: {folder}" if folder else f"real data: {REAL_DATA} is unset; the tests on real data are left out"


def pytest_configure() -> None:
    # A shell that runs the tests in the background has SIGINT ignored, in all that they start too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = os.environ.get(REAL_DATA)
    if folder and not Path(folder).is_dir():
        raise pytest.UsageError(f"{REAL_DATA} names {folder!r}, which is no folder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that need the real data where there is none, and puts the longest files first.

    A file that takes minutes and begins last would have all cores but one wait for it.
    """
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
    left_out = [item for item in items if "real_data" in getattr(item, "fixturenames", ())]
    if left_out and not os.environ.get(REAL_DATA):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data; a test that asks for it runs only where MILLRACE_TEST_DATA names one."""
    return Path(os.environ[REAL_DATA]).resolve()
