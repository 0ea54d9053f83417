"""A service of jobs on loopback that answers by HTTP with JSON, in threads of this process."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any


class JobService:
    """Jobs, each run by a thread of its own.

    Attributes:
      endpoint: the address.
      jobs: all jobs by id, in the order in which they were submitted.
      status: answers every request with this HTTP status; None: answers what is asked.
    """

    def __init__(self) -> None:
        self._open = threading.Event()  # unset: jobs stay in the queue
        self._open.set()
        self._threads: list[threading.Thread] = []
        self.endpoint = ""
        self.jobs: dict[str, Any] = {}
        self.status: int | None = None

    @contextlib.contextmanager
    def queueing(self) -> Iterator[None]:
        """Jobs that are submitted in the block stay in the queue until it ends."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def start(self, job: Any, work: Callable[[Any], None]) -> None:
        """Adds a job, which is worked on once the queue is open."""

        def run() -> None:
            self._open.wait()
            work(job)

        self.jobs[job.id] = job
        self._threads.append(threading.Thread(target=run, name=job.id))
        self._threads[-1].start()

    def cancel(self, job: Any) -> None:
        """Cancels a job, unless it has ended."""
        raise NotImplementedError

    def close(self) -> None:
        """Cancels what is running, and waits for it."""
        for job in self.jobs.values():
            self.cancel(job)
        self._open.set()
        for thread in self._threads:
            thread.join()


class JsonHandler(http.server.BaseHTTPRequestHandler):
    """One connection of a client; `service` is what the requests are about."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Logs nothing."""

    @property
    def service(self) -> Any:
        return self.server.service

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

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
def serving(service: Any, handler: type[JsonHandler]) -> Iterator[None]:
    """Serves at the service's `endpoint` until the `with` block ends, and closes it."""
    with _Server(service, handler) as server:
        service.endpoint = f"http://localhost:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            service.close()
            server.shutdown()
