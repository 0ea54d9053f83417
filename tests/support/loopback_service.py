"""A service on loopback that answers by HTTP with JSON, in threads of this process."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any


class JsonHandler(http.server.BaseHTTPRequestHandler):
    """One connection of a client; `service` is what the requests are about."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Logs nothing."""

    @property
    def service(self) -> Any:
        return self.server.service

    def send_json(self, data: bytes, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, service: Any, handler: type[JsonHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.service = service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes the connection is no error."""


@contextlib.contextmanager
def serving(service: Any, handler: type[JsonHandler]) -> Iterator[str]:
    """Serves until the `with` block ends; yields the address."""
    with _Server(service, handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
