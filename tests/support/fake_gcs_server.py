"""Runs fake-gcs-server, a server of Google Cloud Storage's API, in its own process on loopback.

`make cloud-tools` builds it.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.support import server_process

BINARY = server_process.BUILT / "fake-gcs-server"
PUBLIC_HOST = "storage.googleapis.com"  # where objects are read by /bucket/name, as TensorFlow does


@contextlib.contextmanager
def running(folder: Path, *, port: int, address: str) -> Iterator[None]:
    """Starts an empty server; its objects are in memory, and its log is in `folder`.

    Args:
      folder: where the log is written.
      port: the server's port.
      address: where clients reach it, for the addresses in its answers.
    """
    command = [
        server_process.built(BINARY),
        "-scheme",
        "http",
        "-host",
        "127.0.0.1",
        "-port",
        str(port),
        "-backend",
        "memory",
    ]
    command += ["-public-host", PUBLIC_HOST, "-external-url", address, "-log-level", "warn"]
    with server_process.running(command, port=port, log=folder / "fake-gcs-server.log"):
        yield


def make_bucket(address: str, name: str) -> None:
    """Creates an empty bucket, at the address of a server or a gateway."""
    data, json_type = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/storage/v1/b?project=tests", data, json_type)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        assert answer.status == 200
