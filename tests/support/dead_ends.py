"""Addresses of services that are no help: one says nothing, one ends when it is asked, and at one nothing listens."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc

from tests.support import processes
from tests.support.processes import free_port


@contextlib.contextmanager
def mute() -> Iterator[str]:
    """Accepts connections, and neither reads nor answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"localhost:{server.getsockname()[1]}"


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """Refuses connections."""
    yield f"localhost:{free_port()}"


@contextlib.contextmanager
def ends_when_asked(folder: Path) -> Iterator[str]:
    """A gRPC server, in a process of its own, which exits at the first request, of whatever kind."""
    port = free_port()
    command = [sys.executable, "-m", __name__, str(port)]
    with processes.running(command, port=port, log=folder / "server.log"):
        yield f"localhost:{port}"


class _Exits(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> NoReturn:
        os._exit(1)


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(1), handlers=[_Exits()])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()
