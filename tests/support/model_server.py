"""A model server in threads of this process, and a client of it that sends bytes as they are."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from trainer.serving.options import ServeOptions
from trainer.serving.server import Server
from trainer.serving.sink import RequestSink

PATIENCE = (
    300  # seconds; far beyond what anything takes on a busy machine, so that a fault fails a test and does not hang it
)


def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds, `PATIENCE` at most."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def serving(model_dir: object, *, sink: RequestSink | None = None, **options: Any) -> Iterator[Server]:
    """A server on a free port, which has stopped at the end."""
    server = Server(ServeOptions(model_dir=str(model_dir), port=0, **options), sink=sink)
    started = threading.Event()
    thread = threading.Thread(target=lambda: server.run(started=started.set))
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


class Client:
    """Requests on one connection."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.model = f"/v1/models/{server.name}"
        self._headers = headers
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self.headers: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON of an answer; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in {**self._headers, **headers}.items()}
        self.connection.request(method, path, data, named)
        response = self.connection.getresponse()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        text = response.read()
        return response.status, json.loads(text) if self.headers.get("content-type") == "application/json" else text

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        return self.ask("POST", path, body, **headers)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self.ask("GET", path, **headers)

    def predict(self, body: Any, **headers: str) -> tuple[int, Any]:
        return self.post(f"{self.model}:predict", body, **headers)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
