"""Who is answered: tokens, and reachable addresses; and nginx in front of a server.

The command's mistakes are each a line that says what to do, before TensorFlow is started. The configuration of nginx is
that of the documentation: TLS, limits, and floods that lock nobody out.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.serve import command
from millrace.serve.options import TOKEN_VARIABLE, ServeOptions
from millrace.serve.server import Server
from schemas.errors import MillraceError, UsageError
from tests.support import hostile_clients, loopback_service, processes
from tests.support.commands import ROOT, assert_light
from tests.support.exports import write_export
from tests.support.model_server import PATIENCE, Client, serving
from tests.support.processes import until

TOKEN, OTHER = "0123456789abcdef0123", "fedcba98765432100123"


def test_a_token_is_asked_for_everywhere_but_by_probes(export, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n{OTHER}\n")
    with serving(export, token_file=str(file)) as server, Client(server) as client:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer "}):
            for method, path in (
                ("POST", f"{client.model}:predict"),
                ("POST", "/predict"),
                ("POST", "/admin/reload"),
                ("GET", client.model),
                ("GET", "/metrics"),
            ):
                status, answer = client.ask(method, path, b"[]" if method == "POST" else None, **header)
                assert (status, "Authorization: Bearer" in answer["error"]) == (401, True)
        for token in (TOKEN, OTHER):
            assert client.predict({"instances": [1]}, Authorization=f"Bearer {token}")[0] == 200
        assert client.get("/healthz")[0] == client.get("/readyz")[0] == 200


def test_the_token_may_be_in_the_environment(export, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with serving(export) as server, Client(server) as client:
        assert client.predict({"instances": [1]})[0] == 401
        assert client.predict({"instances": [1]}, Authorization=f"bearer {TOKEN}")[0] == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "::"}, "there is no token"),
        ({"token_file": "/nowhere"}, "--token_file /nowhere: no such file"),
        ({"token_file": "empty"}, "--token_file empty: is empty"),
        ({"token_file": "short"}, "--token_file short: token 1 has 5 characters"),
        ({"host": "a..b"}, "--host a..b: "),
        ({"host": 64 * "a"}, f"--host {64 * 'a'}: "),
    ],
)
def test_options_that_are_refused(export, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("short").write_text("token")
    with pytest.raises(UsageError) as raised:
        Server(ServeOptions(**{"model_dir": str(export), "port": 0, **options}))
    assert message in str(raised.value)


def test_a_port_that_is_taken(export, default):
    with pytest.raises(MillraceError, match="Address already in use; stop what listens"):
        Server(ServeOptions(model_dir=str(export), port=default.port))


def test_insecure(export):
    with serving(export, host="0.0.0.0", insecure=True) as server, Client(server) as client:
        assert client.predict({"instances": [1]})[0] == 200


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: --model_dir"),
        (["--model_dir", "nowhere"], "nowhere: no such folder; expected a model directory, an export, or a folder"),
        (["--model_dir", "nowhere", "--port", "99999"], "--port 99999: must be between 0 and 65,535"),
        (
            ["--model_dir", "nowhere", "--port", "0", "--host", "0.0.0.0"],
            "--host 0.0.0.0: other machines can reach this address, and there is no token",
        ),
        (["--model_dir", "nowhere", "--retain_days", "3"], "--retain_days: belongs to --store"),
        (["--model_dir", "nowhere", "--max_rows", "0"], "--max_rows 0: must be more than 0"),
        (["--model_dir", "nowhere", "--token", "secret"], "--token: unknown option; did you mean --token_file?"),
    ],
)
def test_wrong_usage(argv, message):
    assert_light("millrace.serve.command", argv, code=2, message=message)


def test_without_credentials_it_says_so_and_nothing_else(tmp_path):
    nobody = "127.0.0.1:1"  # no cloud gives this machine an account
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "GCE_", "GCLOUD_"))}
    env |= {"HOME": str(tmp_path), "GCE_METADATA_HOST": nobody, "GCE_METADATA_IP": nobody, "PYTHONPATH": str(ROOT)}
    env |= {
        "CLOUDSDK_CONFIG": str(tmp_path),
        "NO_GCE_CHECK": "true",
    }
    command = [sys.executable, "-m", "millrace", "serve", "--model_dir", "gs://bucket/model"]
    done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: gs://bucket/model/saved_model.pb: no Google Cloud credentials were found")


def test_a_bad_export(tmp_path, capsys):
    made = write_export(tmp_path, 1)
    (made / "saved_model.pb").write_bytes(b"")
    assert command.main(["--model_dir", str(tmp_path), "--port", "0", "--json"]) == 1
    output = capsys.readouterr()
    assert "no export in it can be served" in json.loads(output.out)["error"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ version 1 is not served: ", output.err)


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
    def rows(self) -> int:
        """How many the model has answered."""
        return int(float(re.findall(rb"(?m)^millrace_rows_total (.*)$", self.metrics)[0]))

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
        for original, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("127.0.0.1:8501", f"127.0.0.1:{server.port}"),
            ("/etc/millrace/chain.pem", str(made.certificate)),
            ("/etc/millrace/key.pem", str(made.key)),
            ("server_name models.example", "server_name localhost"),
            ("worker_processes auto", "worker_processes 1"),
            ("worker_connections 4096", f"worker_connections {CONNECTIONS}"),
        ):
            assert text.count(original) == 1
            text = text.replace(original, here)
        temporary = [
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ]
        (folder / "nginx.conf").write_text(text.replace("http {\n", "\n".join(["http {", *temporary, ""])))
        command = [nginx, "-p", str(folder), "-e", "errors.log", "-c", str(folder / "nginx.conf"), "-g"]
        user = "user root; " if os.geteuid() == 0 else ""
        command.append(f"{user}daemon off; pid {folder}/nginx.pid;")
        with processes.running(command, port=port, log=folder / "log"):
            yield Proxy(server, port, made.authority)


@pytest.mark.proxy
def test_predictions_pass(proxy):
    assert proxy.predict() == (200, ANSWER)
    assert proxy.ask("GET", "/healthz")[0] == 200


@pytest.mark.proxy
def test_chunks_are_given_their_length(proxy):
    assert proxy.predict(iter([BODY[:5], BODY[5:]])) == (200, ANSWER)


@pytest.mark.proxy
def test_the_admin_addresses_are_not_for_its_clients(proxy):
    assert proxy.ask("POST", "/admin/reload")[0] == proxy.ask("POST", "/admin/../admin/reload")[0] == 403


@pytest.mark.proxy
def test_a_body_that_is_too_large(proxy):
    with proxy.tls() as connection:
        connection.sendall(hostile_clients.head("/predict", f"Content-Length: {33 << 20}"))
        assert hostile_clients.statuses(connection.recv(1 << 16)) == (413,)


@pytest.mark.proxy
def test_a_flood_of_bare_connections_locks_nobody_out(proxy):
    with contextlib.ExitStack() as opened:
        for _ in range(3 * CONNECTIONS):
            opened.enter_context(proxy.bare())
        for _ in range(20):
            assert proxy.predict() == (200, ANSWER)


@pytest.mark.proxy
def test_requests_sent_ahead_are_answered_in_order_and_hold_up_nobody(proxy):
    """Also where the client reads no answer until the end."""
    bodies = [json.dumps({"instances": [x]}).encode() for x in range(3000)]
    target = f"/v1/models/{proxy.server.name}:predict"
    with proxy.tls() as connection:
        connection.settimeout(0)
        sent = memoryview(b"".join(hostile_clients.whole(target, body) for body in bodies))
        with contextlib.suppress(OSError):  # where no more fits into the buffers of the system, or nginx has had enough
            while sent:
                sent = sent[connection.send(sent) :]
        assert proxy.predict() == (200, ANSWER)
        connection.settimeout(PATIENCE)
        answer = hostile_clients.read_all(connection)
    values = re.findall(rb'"value":([0-9]+)\.0\}', answer)
    assert len(values) >= 100
    assert values == [b"%d" % (x + 1) for x in range(len(values))]
    assert set(hostile_clients.statuses(answer)) == {200}


@pytest.mark.proxy
@pytest.mark.parametrize("name", hostile_clients.CLIENTS)
def test_whatever_bytes_a_client_sends_its_connection_ends_and_others_are_answered(proxy, name):
    """And what is hidden in a request is not answered as another."""
    answered, target = proxy.rows, f"/v1/models/{proxy.server.name}:predict"
    with proxy.tls() as connection:
        answer = hostile_clients.converse(connection, hostile_clients.CLIENTS[name](target, BODY))
    assert proxy.rows == answered + hostile_clients.statuses(answer).count(200)
    assert proxy.predict() == (200, ANSWER)
    until(lambda: b"millrace_reading_bytes 0.0" in proxy.metrics)


@pytest.mark.proxy
def test_bodies_that_do_not_end_take_nothing_of_the_server_and_lock_out_their_own_address_only(proxy):
    def half() -> socket.socket:
        connection = opened.enter_context(proxy.tls())
        connection.sendall(hostile_clients.head("/predict", "Content-Length: 100") + b"[")
        return connection

    with contextlib.ExitStack() as opened:
        until(lambda: half() and proxy.predict()[0] == 429)
        assert proxy.predict(source="127.0.0.2") == (200, ANSWER)
        assert b"millrace_reading_bytes 0.0" in proxy.metrics
