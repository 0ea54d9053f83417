"""Google Cloud Storage on loopback: server processes, and the settings of its clients."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import gcs_gateway, loopback_service, processes
from tests.support.gateway_settings import Fault, Traffic


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A running server.

    Attributes:
      environment: variables that make google-cloud-storage, Beam and TensorFlow use this server and no other.
      gateway: the address of the gateway that all requests pass through.
    """

    environment: dict[str, str]
    gateway: str
    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def new_bucket(self) -> str:
        """Makes an empty bucket; returns its address."""
        name = f"bucket-{next(self._numbers)}"
        make_bucket(self.gateway, name)
        return f"gs://{name}"

    def inject(self, *faults: Fault) -> None:
        """Replaces the pending faults, and resets the counts to 0."""
        self._control({"faults": [dataclasses.asdict(fault) for fault in faults]})

    def log_in(self, **settings: float) -> None:
        """Changes the settings of `tests.support.gateway_settings.Logins`, and forgets all tokens."""
        self._control({"logins": settings})

    @property
    def issued(self) -> list[str]:
        """The kinds of credentials for which tokens were issued since `log_in`, in order."""
        return list(self._control()["issued"])

    @property
    def traffic(self) -> Traffic:
        """What passed since `inject`."""
        counts = self._control()
        return Traffic(**{field.name: counts[field.name] for field in dataclasses.fields(Traffic)})

    @property
    def injected(self) -> int:
        """The number of requests with a fault."""
        return int(self._control()["injected"])

    @property
    def requests(self) -> list[str]:
        """The requests since `inject`, as `METHOD path?query`."""
        return list(self._control()["requests"])

    @property
    def refused(self) -> list[str]:
        """The addresses other than Google Cloud Storage's that clients have requested."""
        return list(self._control()["refused"])

    def _control(self, change: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if change is None else json.dumps(change).encode()
        request = urllib.request.Request(
            f"{self.gateway}{gcs_gateway.CONTROL}", data, method="GET" if data is None else "PUT"
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return dict(json.load(answer))


@contextlib.contextmanager
def running_gcs(folder: Path) -> Iterator[Cloud]:
    """Starts the server and the gateway. Their files are in `folder`, including the server's log."""
    certificate = loopback_service.make_certificate(folder, gcs_gateway.HOSTS)
    port = processes.free_port()
    with (
        gcs_gateway.running(port, certificate) as gateway,
        running_gcs_server(folder, port=port, address=gateway),
    ):
        environment = {
            "STORAGE_EMULATOR_HOST": gateway,
            "GOOGLE_CLOUD_PROJECT": "tests",
            "https_proxy": gateway,
            "no_proxy": "127.0.0.1,localhost",
            "CURL_CA_BUNDLE": str(certificate.authority),  # for TensorFlow
            "REQUESTS_CA_BUNDLE": str(certificate.authority),  # for requests to services that issue tokens
            # TensorFlow's client takes its token from here instead of from a metadata server.
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "loopback",
            "NO_GCE_CHECK": "true",
            "GCE_METADATA_HOST": "127.0.0.1:1",
        }
        cloud = Cloud(environment, gateway)
        yield cloud
        assert not cloud.refused, f"the tests asked for other addresses: {cloud.refused}"


BINARY = processes.BUILT / "fake-gcs-server"
PUBLIC_HOST = "storage.googleapis.com"  # where objects are read by /bucket/name, as TensorFlow does


@contextlib.contextmanager
def running_gcs_server(folder: Path, *, port: int, address: str) -> Iterator[None]:
    """Starts an empty server; its objects are in memory, and its log is in `folder`.

    Args:
      folder: where the log is written.
      port: the server's port.
      address: where clients reach it, for the addresses in its answers.
    """
    command = [
        processes.built(BINARY),
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
    with processes.running(command, port=port, log=folder / "fake-gcs-server.log"):
        yield


def make_bucket(address: str, name: str) -> None:
    """Creates an empty bucket, at the address of a server or a gateway."""
    data, json_type = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/storage/v1/b?project=tests", data, json_type)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        assert answer.status == 200
