"""What every test shares: the libraries' settings, and the real data where there is some."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from schemas.dataset import OpenDataset
    from tests.support.cloud import Cloud
    from tests.support.dataflow_service import DataflowService
    from tests.support.prism import Prism

# Before anything imports TensorFlow: Estimator needs the legacy Keras, and the log's chatter hides what failed.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Neither how fast the machine is decides anything nor chance.
settings.register_profile(
    "millrace",
    settings(),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports the libraries and all tests without the garbage collector, as `quick_import` does for a command.

    What exists then lives as long as the process. Graphs, too, are many objects and little garbage: a collector that
    runs less often saves 3 % of the time of tests that train.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 10)
        gc.enable()


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


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """A folder that no test changes, for all workers of a test run: the first one that needs it builds it, others wait.

    Args:
      factory: pytest's `tmp_path_factory`.
      name: identifies the folder in this test run.
      build: fills the empty folder, in one of the workers. If it fails, the next worker tries again.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has a folder of its own in it
    shared = base / "shared"
    shared.mkdir(exist_ok=True)
    folder, built = shared / name, shared / f"{name}.built"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when a worker dies
        if not built.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            built.touch()
    return folder


@pytest.fixture(scope="session")
def share(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`built_once` in this test run: `share(name, build)`."""
    return functools.partial(built_once, tmp_path_factory)


@pytest.fixture(scope="session")
def share_dataset(share) -> Callable[[str, Callable[[Path], object]], OpenDataset]:
    """The same of a dataset that `build(folder)` writes to `out`."""
    from schemas.dataset import open_dataset

    return lambda name, build: open_dataset(str(share(name, build) / "out"))


@pytest.fixture(scope="session")
def late(share_dataset) -> OpenDataset:
    """A label of two classes, a key and three features: a training and an export take a third of what `people` does."""
    from tests.support.csv_datasets import LATE
    from tests.support.datasets import written_rows

    rows = [f"r{i},{20 + i % 40},{i % 60},{'abc'[i % 3]},{'yes' if i % 40 > 20 else 'no'}" for i in range(300)]
    return share_dataset("late", lambda folder: written_rows(folder, LATE, "id,age,hours,work,late", rows))


@pytest.fixture(scope="session")
def parcels(share) -> Path:
    """A folder with `raw.csv`, `schema.yaml`, the dataset `data` and the trained `model`; no test changes it."""
    from tests.support.parcels import write_parcels

    return share("parcels", write_parcels)


@contextlib.contextmanager
def client_of(server: Cloud, client: Any) -> Iterator[None]:
    """In the `with` block, this process's environment is the server's, and the one client of the process asks it."""
    from tests.support.loopback_service import forget

    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        forget(client)
        yield
        forget(client)


@pytest.fixture(scope="session")
def running_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A server of Google Cloud Storage, and this process's environment set for it; for tests marked `cloud`."""
    from schemas.storage import gcs
    from tests.support import cloud

    with cloud.running_gcs(tmp_path_factory.mktemp("cloud")) as running, client_of(running, gcs.client):
        yield running


@pytest.fixture(scope="session")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prism]:
    """Prism with a worker pool, each in a process of its own; for tests marked `engines`."""
    from tests.support import prism

    with prism.running(tmp_path_factory.mktemp("prism")) as running:
        yield running


@pytest.fixture(scope="session")
def dataflow(running_cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataflowService]:
    """A Dataflow service that runs jobs from buckets of `running_cloud`; for tests marked `cloud`."""
    from tests.support import dataflow_service

    with dataflow_service.running(tmp_path_factory.mktemp("dataflow")) as service:
        yield service
