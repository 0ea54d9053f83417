"""Busy servers, lost answers and cut connections, injected on the way to the bucket: the work goes on, and nothing is
done twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders
from tests.support.faults import Fault

# The client library leaves it to the garbage collector to close a connection whose answer it has not read.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DATA = bytes(range(256)) * 1024

BUSY = [pytest.param(429, id="429"), pytest.param(503, id="503")]


@pytest.mark.parametrize("status", BUSY)
def test_what_a_busy_server_refuses_is_asked_again(cloud, bucket, tmp_path: Path, status: int) -> None:
    (tmp_path / "local").write_bytes(DATA)
    storage.write_bytes(f"{bucket}/in/a", DATA)
    steps = {
        "read": lambda: storage.read_bytes(f"{bucket}/in/a"),
        "stat": lambda: storage.stat(f"{bucket}/in/a"),
        "list": lambda: storage.listdir(f"{bucket}/in"),
        "match": lambda: storage.expand([f"{bucket}/in/*"]),
        "write": lambda: storage.write_bytes(f"{bucket}/in/b", DATA),
        "upload": lambda: folders.upload(str(tmp_path / "local"), f"{bucket}/in/c"),
        "rename": lambda: folders.move(f"{bucket}/in/c", f"{bucket}/in/d"),
        "swap": lambda: folders.swap(f"{bucket}/in/e", DATA, folders.look(f"{bucket}/in/e")),
        "delete": lambda: storage.delete(f"{bucket}/in/b"),
    }
    for step in steps.values():
        cloud.inject(Fault(".", status=status))
        step()
        assert cloud.injected == 1
    assert storage.listdir(f"{bucket}/in") == ["a", "d", "e"]
    assert {storage.read_bytes(f"{bucket}/in/{name}") for name in "ade"} == {DATA}


def test_what_the_server_did_though_its_answer_was_lost_is_done_once(cloud, bucket) -> None:
    path = f"{bucket}/a"
    for where, step, left in (
        ("POST", lambda: storage.write_bytes(path, b"1"), b"1"),
        ("POST", lambda: folders.swap(path, b"2", folders.look(path)), b"2"),
        ("POST.*rewriteTo", lambda: folders.move(path, f"{path}2"), None),
        ("DELETE", lambda: storage.delete(f"{path}2"), None),
    ):
        cloud.inject(Fault(where, cut=0))
        step()
        assert cloud.injected == 1
        assert folders.look(path).data == left
    assert storage.listdir(bucket) == []


def test_a_download_that_is_cut_is_read_whole(cloud, bucket) -> None:
    storage.write_bytes(f"{bucket}/a", DATA)
    cloud.inject(Fault("GET.*alt=media", cut=1000, times=2))
    assert storage.read_bytes(f"{bucket}/a") == DATA
    cloud.inject(Fault("GET.*alt=media", cut=1000))
    with storage.open_read(f"{bucket}/a") as file:
        file.seek(100)
        assert file.read() == DATA[100:]
    assert cloud.injected == 1


def test_tensorflow_reads_on_through_busy_servers_and_cut_connections(cloud, bucket) -> None:
    with tf.io.TFRecordWriter(f"{bucket}/a.tfrecord") as writer:
        for i in range(2000):
            writer.write(b"%d" % i * 100)
    cloud.inject(Fault("GET /bucket", status=503), Fault("GET /bucket", status=429), Fault("GET /bucket", cut=1000))
    records = list(tf.data.TFRecordDataset([f"{bucket}/a.tfrecord"]).as_numpy_iterator())
    assert cloud.injected == 3
    assert records == [b"%d" % i * 100 for i in range(2000)]


def test_a_bucket_that_may_not_be_read_is_named_with_what_to_do(cloud, bucket) -> None:
    cloud.inject(Fault(".", status=403, times=100))
    steps = (storage.stat, storage.read_bytes, storage.listdir, lambda path: storage.write_bytes(path, b""))
    for step, needed in zip(steps, ("get", "get", "list", "create"), strict=True):
        with pytest.raises(MillraceError) as raised:
            step(f"{bucket}/a")
        assert str(raised.value).startswith(f"{bucket}/a: permission denied (storage.objects.{needed}): ")
        assert "roles/storage.objectUser" in str(raised.value)
        assert "\n" not in str(raised.value)


def test_without_credentials_one_line_says_what_to_do(cloud, bucket, monkeypatch, tmp_path: Path) -> None:
    from schemas.storage import gcs_client

    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    gcs_client.client.cache_clear()
    with pytest.raises(MillraceError, match="no Google Cloud credentials") as raised:
        storage.stat(f"{bucket}/a")
    assert "gcloud auth application-default login" in str(raised.value)
    assert "\n" not in str(raised.value)
    gcs_client.client.cache_clear()
