"""The gateway to fake-gcs-server for all clients of Google Cloud Storage, on one port of loopback.

Google's client library sends plain HTTP to the host in STORAGE_EMULATOR_HOST. TensorFlow has no such option: it
connects to `storage.googleapis.com` and `www.googleapis.com` over TLS, through the proxy in `https_proxy`. The gateway
answers CONNECT for these two hosts, and for those that issue tokens. It refuses every other host: nothing leaves
loopback.

It also issues tokens, injects faults, and does what fake-gcs-server does not do as Google's server does. So a part of
an upload that was received is not appended again when it is sent again, as after a lost answer; of a part whose
connection was cut, the first multiple of 256 KB is kept; and a client may ask how much has arrived.

It runs in its own process, because some of TensorFlow's functions hold Python's lock while they wait for an answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.gateway_settings import Fault, Faults, Logins, Traffic
from tests.support.loopback_service import Certificate, JsonHandler, Server

ROOT = Path(__file__).parents[2]
CONTROL = "/control-of-the-gateway"
STORAGE, LOGINS = ("storage.googleapis.com", "www.googleapis.com"), ("oauth2", "iamcredentials")
HOSTS = (*STORAGE, *(f"{name}.googleapis.com" for name in LOGINS))
_CHUNK = 256 << 10  # bytes of an answer that are passed on at once
_NAME = re.compile(rb'"name": ?"([^"]*)"')
_OF_ONE_HOP = {"connection", "content-length", "expect", "proxy-connection", "transfer-encoding"}
UNIT = 256 << 10
_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclasses.dataclass
class Upload:
    """What has arrived of an upload; and the answer to its last part, once that has come."""

    received: int = 0
    answer: tuple[int, list[tuple[str, str]], bytes] | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """A part to pass on: its `Content-Range`, and its bytes."""

    content_range: str
    data: bytes


class ResumableUploads:
    """The uploads of a server, by their ids. Thread-safe; an upload is used by one client at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[str, Upload] = {}

    def of(self, upload_id: str) -> Upload:
        with self._lock:
            return self._uploads.setdefault(upload_id, Upload())


def is_question(content_range: str, body: bytes) -> bool:
    """Whether a client asks how much has arrived. `bytes */0` ends an upload of nothing."""
    return not body and content_range.startswith("bytes */") and content_range != "bytes */0"


def new_part(upload: Upload, content_range: str, body: bytes) -> Part | None:
    """What is new in a part that was sent; None if nothing is, or if it is no part of known place."""
    match = _PART.fullmatch(content_range)
    if match is None:
        return Part(content_range, body)
    first, last = int(match[1]), int(match[2])
    overlap = upload.received - first
    if overlap > 0 and upload.received > last:
        return None
    start = max(0, overlap)
    return Part(f"bytes {first + start}-{last}/{match[3]}", body[start:])


def beginning(part: Part, size: int) -> Part | None:
    """What is kept of a part if its connection is cut after `size` bytes; None if that is nothing."""
    match = _PART.fullmatch(part.content_range)
    length = min(size, len(part.data) - 1) // UNIT * UNIT
    if match is None or length <= 0:
        return None
    first = int(match[1])
    return Part(f"bytes {first}-{first + length - 1}/*", part.data[:length])


def arrived(upload: Upload, part: Part) -> None:
    """Notes that the server has taken a part."""
    match = _PART.fullmatch(part.content_range)
    if match is not None:
        upload.received = int(match[2]) + 1


class Handler(JsonHandler):
    """One connection of a client."""

    server: Gateway

    def setup(self) -> None:
        super().setup()
        self._there = http.client.HTTPConnection("127.0.0.1", self.server.port_behind)
        self.server.traffic.connected()

    def finish(self) -> None:
        self._there.close()
        with contextlib.suppress(OSError):  # the client has closed the connection
            super().finish()
        self.connection.close()  # the server closes the socket without TLS alone, that it knows

    def do_CONNECT(self) -> None:  # noqa: N802 - the base class calls it so
        host = self.path.rpartition(":")[0]
        if host not in HOSTS:
            self.server.refused.append(self.path)
            self.send_error(403, f"the tests reach {' and '.join(HOSTS)} alone")
            self.close_connection = True
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", self.rbufsize)
        self.wfile = self.connection.makefile("wb", self.wbufsize)
        self.close_connection = False

    def _pass_on(self) -> None:
        body = self._body()
        if self.path == CONTROL:
            self._control(body)
            return
        named = _NAME.search(body[:1024]) if self.command == "POST" else None  # of an upload, whose path has no name
        with self.server.traffic.request(len(body)):
            fault = self.server.faults.meet(f"{self.command} {self.path}{f' {named[1].decode()}' if named else ''}")
            self._serve(body, fault)

    do_DELETE = do_GET = do_HEAD = do_PATCH = do_POST = do_PUT = _pass_on  # noqa: N815 - the base class calls them so

    def _serve(self, body: bytes, fault: Fault | None) -> None:
        if fault is not None and fault.status is not None:
            self._error(fault.status, "injected")
            return
        login = self.server.logins.answer(self.path, body.decode(errors="replace") if len(body) < 1 << 14 else "")
        if login is not None:
            self._login(*login)
            return
        refusal = self.server.logins.refusal(self.command, self.headers.get("Authorization"))
        if refusal is not None:
            self._error(*refusal)
            return
        upload_id = parse_qs(urlsplit(self.path).query).get("upload_id")
        if self.command == "PUT" and upload_id:
            self._take_part(self.server.uploads.of(upload_id[0]), body, fault)
            return
        with self.server.removing if self.command == "DELETE" else contextlib.nullcontext():
            if self._is_changed():
                self._error(412, "conditionNotMet")
                return
            got = self._ask(self.command, self.path, body)
            if self.command == "DELETE":
                got.read()
        self._stream(got, fault)

    def _is_changed(self) -> bool:
        """Whether an object to remove has another generation than the request names; fake-gcs-server does not look."""
        address = urlsplit(self.path)
        expected = parse_qs(address.query).get("ifGenerationMatch")
        if self.command != "DELETE" or not expected:
            return False
        response = self._ask("GET", address.path, b"")
        data = response.read()
        return response.status == 200 and json.loads(data)["generation"] != expected[0]

    def _take_part(self, upload: Upload, body: bytes, fault: Fault | None) -> None:
        """Passes on what is new of a part of an upload, or says how much has arrived."""
        content_range = self.headers.get("Content-Range", "")
        part = None
        if not is_question(content_range, body):
            part = new_part(upload, content_range, body)
            if fault is not None and fault.cut_upload is not None and part is not None:
                part = beginning(part, fault.cut_upload)
        if part is not None:
            got = self._ask("PUT", self.path, part.data, {"Content-Range": part.content_range})
            data = got.read()
            arrived(upload, part)
            if got.status in (200, 201):
                upload.answer = (got.status, _headers(got), data)
            elif got.status != 308:
                self._answer(got.status, _headers(got), data)
                return
        if fault is not None and fault.cut_upload is not None:
            self._cut()
        elif upload.answer is not None:
            self._answer(*upload.answer, cut=None if fault is None else fault.cut)
        else:
            self._answer(308, [("Range", f"bytes=0-{upload.received - 1}")] if upload.received else [], b"")

    def _control(self, body: bytes) -> None:
        """PUT changes the faults and logins that it names; GET returns what happened since the faults were set."""
        server = self.server
        if self.command == "PUT":
            settings = json.loads(body)
            if "faults" in settings:
                server.faults.set(*(Fault(**fault) for fault in settings["faults"]))
                server.traffic.reset()
            if "logins" in settings:
                server.logins.set(**settings["logins"])
        counts = {"injected": server.faults.injected, "requests": server.faults.requests, "refused": server.refused}
        counts |= {"issued": server.logins.issued, **dataclasses.asdict(server.traffic)}
        self._answer(200, [], json.dumps(counts).encode())

    def _body(self) -> bytes:
        """TensorFlow sends `Transfer-Encoding: chunked` together with a length; the body is chunked."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _ask(
        self, method: str, path: str, body: bytes, changed: Mapping[str, str] = types.MappingProxyType({})
    ) -> http.client.HTTPResponse:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
        # The addresses in the server's answers, for the parts of an upload, then lead here again.
        headers["X-Forwarded-Proto"] = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        headers |= {"Content-Length": str(len(body)), **changed}
        for attempt in (1, 2):
            try:
                self._there.request(method, path, body, headers)
                return self._there.getresponse()
            except (http.client.HTTPException, ConnectionError):  # the server has closed the idle connection
                self._there.close()
                if attempt == 2:
                    raise
        raise AssertionError

    def _stream(self, got: http.client.HTTPResponse, fault: Fault | None) -> None:
        """Passes on an answer while it arrives."""
        if fault is not None and fault.flip:
            first, *rest = got.read()
            self._answer(got.status, _headers(got), bytes([first ^ 1, *rest]))
            return
        if fault is not None and (fault.cut is not None or fault.stall):
            self._answer(got.status, _headers(got), got.read(), cut=fault.cut or 0, stall=fault.stall)
            return
        if got.length is None:
            self._answer(got.status, _headers(got), got.read())
            return
        if self.command == "HEAD":  # announces the length of a body that it has not
            self._head(got.status, _headers(got), int(got.getheader("Content-Length", 0)))
            return
        self._head(got.status, _headers(got), got.length)
        while data := got.read(_CHUNK):
            self.wfile.write(data)

    def _answer(
        self,
        status: int,
        headers: list[tuple[str, str]],
        data: bytes,
        *,
        cut: int | None = None,
        stall: float = 0.0,
    ) -> None:
        self._head(status, headers, len(data))
        self.wfile.write(data if cut is None else data[:cut])
        if cut is not None:
            self.wfile.flush()
            time.sleep(stall)
            self._cut()

    def _login(self, status: int, reply: dict[str, object] | str) -> None:
        json_type, data = isinstance(reply, dict), reply if isinstance(reply, str) else json.dumps(reply)
        kind = "application/json" if json_type else "text/html"
        self._answer(status, [("Content-Type", kind), ("Metadata-Flavor", "Google")], data.encode())

    def _error(self, status: int, message: str) -> None:
        data = json.dumps({"error": {"code": status, "message": message}}).encode()
        self._answer(status, [("Content-Type", "application/json")], data)

    def _head(self, status: int, headers: list[tuple[str, str]], length: int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _headers(got: http.client.HTTPResponse) -> list[tuple[str, str]]:
    return [(name, value) for name, value in got.getheaders() if name.lower() not in _OF_ONE_HOP]


class Gateway(Server):
    """Passes requests on to the server that listens on `port_behind`."""

    request_queue_size = 128

    def __init__(self, port_behind: int, certificate: Certificate) -> None:
        super().__init__(None, Handler)
        self.port_behind = port_behind
        self.faults = Faults()
        self.logins = Logins()
        self.traffic = Traffic()
        self.uploads = ResumableUploads()
        self.removing = threading.Lock()
        self.refused: list[str] = []  # other hosts that clients asked for
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate.certificate, certificate.key)


@contextlib.contextmanager
def running(port_behind: int, certificate: Certificate) -> Iterator[str]:
    """Starts a gateway; yields its address."""
    files = [str(certificate.authority), str(certificate.certificate), str(certificate.key)]
    command = [sys.executable, "-m", "tests.support.gcs_gateway", str(port_behind), *files]
    # A session of its own, so that Ctrl-C does not end it before its clients.
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    with Gateway(int(sys.argv[1]), Certificate(*map(Path, sys.argv[2:]))) as gateway:
        print(gateway.server_address[1], flush=True)
        gateway.serve_forever()
