"""Addresses of services that are no help: one accepts connections and says nothing, at the other nothing listens."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from tests.support.server_process import free_port


@contextlib.contextmanager
def mute() -> Iterator[str]:
    """Accepts connections, and neither reads nor answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"localhost:{server.getsockname()[1]}"


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """Refuses connections."""
    yield f"localhost:{free_port()}"
