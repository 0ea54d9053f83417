"""Busy servers, lost answers and cut connections, injected on the way to the bucket: the work goes on, and nothing is
done twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from schemas import storage
from schemas.storage import folders
from tests.support.gateway_settings import Fault

# The client library leaves it to the garbage collector to close a connection whose answer it has not read.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DATA = bytes(range(256)) * 1024

BUSY = [pytest.param(429, id="429"), pytest.param(503, id="503")]


@pytest.mark.parametrize("status", BUSY)
def test_what_a_busy_server_refuses_is_asked_again(bucket, cloud, tmp_path: Path, status: int) -> None:
    (tmp_path / "local").write_bytes(DATA)
    for step in (
        lambda: storage.write_bytes(f"{bucket}/in/a", DATA),
        lambda: storage.read_bytes(f"{bucket}/in/a"),
        lambda: storage.stat(f"{bucket}/in/a"),
        lambda: storage.listdir(f"{bucket}/in"),
        lambda: storage.expand([f"{bucket}/in/*"]),
        lambda: folders.upload(str(tmp_path / "local"), f"{bucket}/in/b"),
        lambda: folders.move(f"{bucket}/in/b", f"{bucket}/in/c"),
        lambda: folders.swap(f"{bucket}/in/d", DATA, folders.look(f"{bucket}/in/d")),
        lambda: storage.delete(f"{bucket}/in/a"),
    ):
        cloud.inject(Fault(".", status=status))
        step()
        assert cloud.injected == 1
    assert storage.listdir(f"{bucket}/in") == ["c", "d"]
    assert {storage.read_bytes(f"{bucket}/in/{name}") for name in "cd"} == {DATA}


def test_a_write_and_a_move_whose_answer_was_lost_are_done_once(cloud, bucket) -> None:
    path = f"{bucket}/a"
    for where, step in (
        ("POST", lambda: storage.write_bytes(path, b"1")),
        ("POST.*rewriteTo", lambda: folders.move(path, f"{path}2")),
        ("POST|PUT", lambda: folders.swap(f"{path}2", b"2", folders.look(f"{path}2"))),
        ("DELETE", lambda: folders.swap(f"{path}2", None, folders.look(f"{path}2"))),
        ("POST", lambda: storage.write_bytes(path, b"1")),
        ("DELETE", lambda: storage.delete(path)),
    ):
        cloud.inject(Fault(where, cut=0))
        step()
        assert cloud.injected == 1
    assert storage.listdir(bucket) == []


def test_a_download_that_is_cut_is_read_whole(bucket, cloud) -> None:
    download = "GET.*alt=media"
    storage.write_bytes(f"{bucket}/a", DATA)
    cloud.inject(Fault(download, cut=1000, times=2))
    assert storage.read_bytes(f"{bucket}/a") == DATA
    assert cloud.injected == 2
    cloud.inject(Fault(download, cut=1000))
    with storage.open_read(f"{bucket}/a") as file:
        file.seek(100)
        assert file.read() == DATA[100:]
    assert cloud.injected == 1
    cloud.inject(Fault(download, flip=True))
    assert storage.read_bytes(f"{bucket}/a") == DATA
    assert cloud.injected == 1


def test_tensorflow_reads_on_through_busy_servers_and_cut_connections(cloud, bucket) -> None:
    with tf.io.TFRecordWriter(f"{bucket}/a.tfrecord") as writer:
        for i in range(2000):
            writer.write(b"%d" % i * 100)
    cloud.inject(Fault("GET /bucket", status=503), Fault("GET /bucket", status=429), Fault("GET /bucket", cut=1000))
    records = list(tf.data.TFRecordDataset([f"{bucket}/a.tfrecord"]).as_numpy_iterator())
    assert cloud.injected == 3
    assert records == [b"%d" % i * 100 for i in range(2000)]
