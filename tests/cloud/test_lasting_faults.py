"""Faults that last: every wait is bounded, what arrived is not sent again, and an error is one line."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from beam_jobs import preprocess
from beam_jobs.engines import runner
from schemas import retries, storage
from schemas.dataset import open_dataset
from schemas.errors import MillraceError
from schemas.storage import folders
from schemas.storage.gcs import CHUNK, UPLOAD_BYTES
from tests.support.gateway_settings import Fault
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.processes import until

# The client library leaves it to the garbage collector to close a connection whose answer it has not read.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

ALWAYS = 10**9
LARGE = np.random.default_rng(1).bytes(2 * UPLOAD_BYTES + 12345)

Steps = dict[str, Callable[[], object]]


def job_argv(folder: Path, raw: str, bucket: str) -> list[str]:
    """A job to `bucket/out` over 300 rows, which are written to `raw`."""
    (folder / "schema.yaml").write_text(LEAN_SCHEMA)
    storage.write_bytes(raw, people_csv(300).encode())
    return ["--schema", f"{folder}/schema.yaml", "--input", raw, "--output", f"{bucket}/out", "--quiet"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "STALL_SECONDS", 1.0)
    monkeypatch.setattr(retries, "RETRY_SECONDS", 4.0)


@pytest.fixture
def large(tmp_path: Path) -> str:
    (tmp_path / "large").write_bytes(LARGE)
    return str(tmp_path / "large")


def steps(bucket: str, large: str) -> Steps:
    """Every kind of request."""
    path = f"{bucket}/a"
    return {
        "stat": lambda: storage.stat(path),
        "read": lambda: storage.read_bytes(path),
        "open": lambda: storage.open_read(path).close(),
        "list": lambda: storage.listdir(bucket),
        "match": lambda: storage.expand([f"{bucket}/*"]),
        "write": lambda: storage.write_bytes(path, b"b"),
        "upload": lambda: folders.upload(large, path),
        "move": lambda: folders.move(path, f"{bucket}/b"),
        "swap": lambda: folders.swap(path, b"b", folders.Snapshot(b"a", 1)),
        "delete": lambda: storage.delete(path),
    }


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(Fault(".", times=ALWAYS, status=503), "status 503", id="503"),
        pytest.param(Fault(".", times=ALWAYS, status=429), "status 429", id="429"),
        pytest.param(Fault(".", times=ALWAYS, wait=20), "nothing arrived for 1 s", id="stalled"),
    ],
)
@pytest.mark.parametrize("step", list(steps("", "")))
def test_what_lasts_longer_than_the_retries_is_one_line(cloud, bucket, large, impatient, fault, message, step) -> None:
    storage.write_bytes(f"{bucket}/a", b"a")
    cloud.inject(fault)
    with pytest.raises(MillraceError) as raised:
        steps(bucket, large)[step]()
    assert str(raised.value).startswith(bucket)
    assert f"did not do it within 4 s of retries; the last failure: {message}" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert cloud.injected > 1


def test_a_download_that_stands_still_is_asked_for_again(cloud, bucket, impatient) -> None:
    storage.write_bytes(f"{bucket}/a", LARGE)
    cloud.inject(Fault("alt=media", cut=1000, stall=20))
    assert storage.read_bytes(f"{bucket}/a") == LARGE
    assert cloud.injected == 1


def test_of_a_large_object_only_the_chunk_that_was_cut_is_asked_for_again(cloud, bucket) -> None:
    storage.write_bytes(f"{bucket}/a", LARGE)
    cloud.inject(Fault("alt=media", after=1, cut=1000))
    assert b"".join(storage.read_chunks(f"{bucket}/a")) == LARGE
    assert cloud.injected == 1
    assert len([request for request in cloud.requests if "alt=media" in request]) == -(-len(LARGE) // CHUNK) + 1


@pytest.mark.parametrize("cut_upload", [0, 1 << 20, UPLOAD_BYTES - 1])
def test_an_upload_that_is_cut_goes_on_in_the_same_session(cloud, bucket, large, cut_upload: int) -> None:
    cloud.inject(Fault("PUT.*upload_id", after=1, cut_upload=cut_upload))
    folders.upload(large, f"{bucket}/a")
    assert cloud.injected == 1
    assert storage.read_bytes(f"{bucket}/a") == LARGE
    assert len([request for request in cloud.requests if request.startswith("POST")]) == 1  # one session
    assert (
        len([request for request in cloud.requests if "upload_id" in request]) == 3 + 1
    )  # three parts, one of them twice


def test_a_job_ends_in_one_line_and_commits_nothing_and_the_next_one_cleans_up(
    cloud, bucket, tmp_path: Path, impatient, capsys
) -> None:
    argv = job_argv(tmp_path, f"{bucket}/raw.csv", bucket)
    cloud.inject(Fault("POST /upload.*shard|POST.*rewriteTo", times=ALWAYS, status=503))
    assert preprocess.main(argv) == 1
    error = capsys.readouterr().err
    assert "status 503" in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
    cloud.inject()
    assert "manifest.json" not in storage.listdir(f"{bucket}/out")
    assert preprocess.main(argv) == 0
    assert sorted(storage.listdir(f"{bucket}/out")) == [open_dataset(f"{bucket}/out").run, "manifest.json"]


def test_a_job_whose_bucket_answers_no_more_says_what_its_clean_up_could_not_do(
    cloud, bucket, tmp_path: Path, impatient, monkeypatch, capsys
) -> None:
    argv = job_argv(tmp_path, f"{tmp_path}/raw.csv", bucket)
    failed_before = 0

    def fails_from_now_on(*_: object) -> object:
        nonlocal failed_before
        cloud.inject(Fault(".", times=ALWAYS, status=503))
        try:
            return storage.read_bytes(f"{bucket}/a")
        finally:
            failed_before = cloud.injected

    monkeypatch.setattr(runner, "started", fails_from_now_on)
    assert preprocess.main(argv) == 1
    assert 2 <= failed_before < cloud.injected <= failed_before + 6  # by a clean-up that asks for nothing twice
    printed = capsys.readouterr().err
    assert f"error: {bucket}/a: Google Cloud Storage did not do it within 4 s of retries" in printed
    assert f"{bucket}/out/lease.json: could not be removed" in printed
    assert f"`millrace dataset prune {bucket}/out`, removes it" in printed
    assert "Traceback" not in printed


def test_ctrl_c_ends_a_job_whose_bucket_answers_no_more(cloud, bucket, tmp_path: Path) -> None:
    argv = job_argv(tmp_path, f"{tmp_path}/raw.csv", bucket)
    command = [sys.executable, "-m", "beam_jobs.preprocess", *argv]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: storage.exists(f"{bucket}/out/lease.json"), "it has the lease")
        cloud.inject(Fault(".", times=ALWAYS, status=503))
        until(lambda: cloud.injected >= 2, "it asks again")
        failed_before = cloud.injected
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "error: interrupted; nothing was committed" in printed
    assert cloud.injected <= failed_before + 12
