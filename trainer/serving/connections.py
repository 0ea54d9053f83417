"""Connections with limits: how long a request may take to arrive, an answer to be read, and how long headers are.

uvicorn closes connections that are idle between requests. What it waits for without end, or holds without limit, ends
here: a client that sends its request a byte at a time, one that never reads its answer, one that sends headers forever.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import Any

from trainer.serving.limits import ConnectionLimits

log = logging.getLogger(__name__)


def protocol_with(limits: ConnectionLimits) -> Any:
    """The protocol of a connection, for `uvicorn.Config(http=...)`."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection(HttpToolsProtocol):
        """`since`: when a request, or its answer, began to be waited for; None while neither is."""

        since: float | None = None
        unread_since: float | None = None
        _header_bytes: int | None = 0  # None while a body arrives

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.since = self.loop.time()
            if len(self.connections) > limits.connections:
                self._refuse(503, "the server has too many connections; try again later")

        def data_received(self, data: bytes) -> None:
            if self._header_bytes is not None:
                if self._header_bytes > limits.header_bytes:
                    self._refuse(431, f"the headers have more than {limits.header_bytes:,} bytes")
                    return
                self._header_bytes += len(data)
            super().data_received(data)
            if len(self.pipeline) > limits.requests_ahead:
                self._reset()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.since = self.loop.time()

        def on_headers_complete(self) -> None:
            self._header_bytes = None
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self.since = None
            self._header_bytes = 0
            super().on_message_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.unread_since = self.loop.time()

        def resume_writing(self) -> None:
            super().resume_writing()
            self.unread_since = None

        def end_if_late(self, now: float) -> None:
            """Ends the connection if its client is too slow; called about every second."""
            if self.since is not None and (self.flow.read_paused or self.pipeline):
                self.since = now  # the client waits for this server
            elif self.since is not None and now - self.since > limits.request_secs:
                self._refuse(408, f"the request took more than {limits.request_secs:g} s to arrive")
            elif self.transport.is_closing() and self.unread_since is None:
                self.unread_since = now  # what is left to send
            elif self.unread_since is not None and now - self.unread_since > limits.answer_secs:
                self._reset()

        def end_if_idle(self) -> None:
            """Ends the connection if nothing is under way on it, without waiting for its client."""
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.get_write_buffer_size():
                self.transport.abort()

        def _reset(self) -> None:
            """Ends the connection at once, for the kernel too, which would go on to offer what is not read."""
            if (own := self.transport.get_extra_info("socket")) is not None:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

        def _refuse(self, status: int, message: str) -> None:
            body = b'{"error":"%s"}' % message.encode()
            head = b"HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\n" % status
            between = self.cycle is None or not self.cycle.response_started or self.cycle.response_complete
            if between and not self.pipeline and not self.transport.is_closing():
                self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
            self.since = None
            self.transport.close()

    return Connection


async def end_late_connections(connections: set[Any]) -> None:
    """Ends those of slow clients, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1)
        now = loop.time()
        for connection in list(connections):
            try:
                connection.end_if_late(now)
            except Exception as error:  # of one connection, which others do not suffer from
                log.error("a connection could not be ended: %s", type(error).__name__)
