"""The nginx configuration of the documentation, before a real server: TLS, limits, and floods that lock nobody out."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.serve.server import Server
from tests.support import hostile_clients, loopback_service, processes
from tests.support.exports import write_export
from tests.support.model_server import PATIENCE, Client, serving
from tests.support.processes import until

pytestmark = pytest.mark.proxy

CONF = Path(__file__).parents[3] / "docs" / "nginx.conf"
BODY = b'{"instances":[1]}'
ANSWER = b'{"predictions":[{"error":"","value":2.0}]}'
CONNECTIONS = 256  # of the one worker; less than in the file, so that a flood of them needs few files


class Proxy:
    """nginx, and who asks it. `server`: the one behind it."""

    def __init__(self, server: Server, port: int, authority: Path) -> None:
        self.server = server
        self.port = port
        self._context = ssl.create_default_context(cafile=str(authority))

    def ask(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None = None, source: str = "127.0.0.1"
    ) -> tuple[int, bytes]:
        """The status and the body of an answer, on a connection of its own from a source's address."""
        connection = http.client.HTTPSConnection(
            "localhost", self.port, timeout=PATIENCE, context=self._context, source_address=(source, 0)
        )
        try:
            connection.request(method, path, body, {"Host": "localhost"}, encode_chunked=not isinstance(body, bytes))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def predict(self, body: bytes | Iterator[bytes] = BODY, source: str = "127.0.0.1") -> tuple[int, bytes]:
        return self.ask("POST", f"/v1/models/{self.server.name}:predict", body, source)

    def bare(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def tls(self) -> socket.socket:
        return self._context.wrap_socket(self.bare(), server_hostname="localhost")

    @property
    def metrics(self) -> bytes:
        with Client(self.server) as client:
            text: bytes = client.get("/metrics")[1]
            return text


@pytest.fixture(scope="module")
def proxy(tmp_path_factory) -> Iterator[Proxy]:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.fail("there is no nginx: install it (Debian: nginx-light)")
    folder = tmp_path_factory.mktemp("proxy")
    made = loopback_service.make_certificate(folder, ["localhost"])
    with serving(write_export(folder, 1)) as server:
        port = processes.free_port()
        text = CONF.read_text()
        for said, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("127.0.0.1:8501", f"127.0.0.1:{server.port}"),
            ("/etc/millrace/chain.pem", str(made.certificate)),
            ("/etc/millrace/key.pem", str(made.key)),
            ("server_name models.example", "server_name localhost"),
            ("worker_processes auto", "worker_processes 1"),
            ("worker_connections 4096", f"worker_connections {CONNECTIONS}"),
        ):
            assert text.count(said) == 1
            text = text.replace(said, here)
        temporary = [
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ]
        (folder / "nginx.conf").write_text(text.replace("http {\n", "\n".join(["http {", *temporary, ""])))
        command = [nginx, "-p", str(folder), "-e", "errors.log", "-c", str(folder / "nginx.conf"), "-g"]
        user = "user root; " if os.geteuid() == 0 else ""
        command.append(f"{user}daemon off; pid {folder}/nginx.pid;")
        with processes.running(command, port=port, log=folder / "log"):
            yield Proxy(server, port, made.authority)


def test_predictions_pass(proxy):
    assert proxy.predict() == (200, ANSWER)
    assert proxy.ask("GET", "/healthz")[0] == 200


def test_chunks_are_given_their_length(proxy):
    assert proxy.predict(iter([BODY[:5], BODY[5:]])) == (200, ANSWER)


def test_the_admin_addresses_are_not_for_its_clients(proxy):
    assert proxy.ask("POST", "/admin/reload")[0] == proxy.ask("POST", "/admin/../admin/roll_back")[0] == 403


def test_a_body_that_is_too_large(proxy):
    with proxy.tls() as connection:
        connection.sendall(hostile_clients.head("/predict", f"Content-Length: {33 << 20}"))
        assert hostile_clients.statuses(connection.recv(1 << 16)) == (413,)


def test_a_flood_of_bare_connections_locks_nobody_out(proxy):
    with contextlib.ExitStack() as opened:
        for _ in range(3 * CONNECTIONS):
            opened.enter_context(proxy.bare())
        for _ in range(20):
            assert proxy.predict() == (200, ANSWER)


def test_bodies_that_do_not_end_take_nothing_of_the_server_and_lock_out_their_own_address_only(proxy):
    def half() -> socket.socket:
        connection = opened.enter_context(proxy.tls())
        connection.sendall(hostile_clients.head("/predict", "Content-Length: 100") + b"[")
        return connection

    with contextlib.ExitStack() as opened:
        until(lambda: half() and proxy.predict()[0] == 429)
        assert proxy.predict(source="127.0.0.2") == (200, ANSWER)
        assert b"millrace_reading_bytes 0.0" in proxy.metrics
