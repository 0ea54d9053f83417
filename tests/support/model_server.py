"""A model server in threads of this process, and a client of it that sends bytes as they are."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millrace.serve.options import ServeOptions
from millrace.serve.server import Server
from tests.support.processes import until

ROOT = Path(__file__).parent.parent.parent
_PORT = re.compile(r"^serving \w+, version \d+: http://127\.0\.0\.1:(\d+)\n", re.MULTILINE)
PATIENCE = (
    300  # seconds; far beyond what anything takes on a busy machine, so that a fault fails a test and does not hang it
)


def started(log: Path, *argv: str) -> tuple[subprocess.Popen[str], int]:
    """The process of a server of its own, which answers, and its port.

    Args:
      log: takes what it prints on standard error.
      argv: of `millrace serve`, without the port.
    """
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "millrace", "serve", "--port", "0", *argv],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            start_new_session=True,
        )
    until(lambda: process.poll() is not None or _PORT.search(log.read_text()))
    ports = _PORT.findall(log.read_text())
    assert ports, log.read_text()
    return process, int(ports[0])


def trying_out(folder: object) -> list[int]:
    """The processes that try out an export of a folder."""
    pids = []
    for process_folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process_folder / "cmdline").read_bytes()
            if b"millrace.serve.trial" in command and f"{folder}/".encode() in command:
                pids.append(int(process_folder.name))
    return pids


@contextlib.contextmanager
def serving(model_dir: object, **options: Any) -> Iterator[Server]:
    """A server on a free port, which has stopped at the end."""
    server = Server(ServeOptions(model_dir=str(model_dir), port=0, **options))
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
        self._latest = time.monotonic()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON of an answer; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in {**self._headers, **headers}.items()}
        if time.monotonic() - self._latest > 5:  # the server closes connections that are idle
            self.connection.close()
        self.connection.request(method, path, data, named)
        response = self.connection.getresponse()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        text = response.read()
        self._latest = time.monotonic()
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
