"""Connections with limits: how long a request may take to arrive, an answer to be read, and how long headers are.

uvicorn closes connections that are idle between requests. What it waits for without end, or holds without limit, ends
here: a client that sends its request a byte at a time, one that never reads its answer, one that sends headers
forever.

Who may ask: the token, and the names that the server answers to.

A page in somebody's browser may send requests to addresses of their machine. The names in `Host` keep out a page whose
own name was made to lead here (DNS rebinding), and `Origin`, which browsers send along, keeps out all other pages.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millrace.serve.model import Refused
from millrace.serve.options import TOKEN_VARIABLE as VARIABLE
from schemas import storage
from schemas.errors import UsageError

SHORTEST = 16  # characters of a token
_KNOWN = 64  # names that are remembered as allowed
_HEAD_BYTES = 32 << 10  # of a request's head: its first line and its headers
_AHEAD = 1000  # requests that a client sends before it has the answers to earlier ones; more end the connection

Headers = Mapping[bytes, bytes]


def read_tokens(token_file: str | None) -> tuple[bytes, ...]:
    """The tokens: the lines of a file, or the environment variable's value; none if there is neither.

    Raises:
      UsageError: the file cannot be read or is empty, or a token is too short.
    """
    if token_file is not None:
        if not storage.exists(token_file):
            raise UsageError(f"--token_file {token_file}: no such file")
        where, lines = f"--token_file {token_file}", storage.read_bytes(token_file).split()
    else:
        where, lines = f"the environment variable {VARIABLE}", os.environ.get(VARIABLE, "").encode().split()
        if VARIABLE not in os.environ:
            return ()
    if not lines:
        raise UsageError(f"{where}: is empty; expected a token, such as `openssl rand -hex 32` prints")
    for number, token in enumerate(lines, start=1):
        if len(token) < SHORTEST:
            raise UsageError(f"{where}: token {number} has {len(token)} characters; expected at least {SHORTEST}")
    return tuple(lines)


class Guard:
    """Refuses requests. `allowed_hosts`: names besides this machine's own; `*` stands for all."""

    def __init__(self, tokens: Sequence[bytes], allowed_hosts: Sequence[str]) -> None:
        self._tokens = tuple(tokens)
        self._allowed = {"localhost", socket.gethostname().lower(), *(name.lower() for name in allowed_hosts)}
        self._known: set[bytes] = set()

    def check_host(self, headers: Headers) -> None:
        """Refuses a request to another name, or from another server's page."""
        host = headers.get(b"host", b"")
        if host not in self._known:
            if not self._is_own(host):
                raise Refused(421, "the name in Host is not one that this server answers to; see --allowed_hosts")
            if len(self._known) < _KNOWN:
                self._known.add(host)
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise Refused(403, "requests of other servers' pages are not answered")

    def check_token(self, headers: Headers) -> None:
        """Refuses a request without the token."""
        if not self._tokens:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        known = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        if scheme.lower() != b"bearer" or not any(known):
            raise Refused(401, "expected the header `Authorization: Bearer TOKEN`, with the server's token")

    def _is_own(self, host: bytes) -> bool:
        """Whether a name is one of this server's; an address of digits cannot be made to lead elsewhere."""
        if "*" in self._allowed:
            return True
        name = _without_port(host.decode("latin-1")).lower()
        if name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


log = logging.getLogger(__name__)


def protocol_with(*, connections: int, request_secs: float, answer_secs: float) -> Any:
    """The protocol of a connection, for `uvicorn.Config(http=...)`.

    Args:
      connections: at a time; more are refused.
      request_secs: from a request's first byte to its last, and from the connection to the first byte.
      answer_secs: until the client has read what it was sent.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection(HttpToolsProtocol):
        """`since`: when a request, or its answer, began to be waited for; None while neither is."""

        since: float | None = None
        unread_since: float | None = None
        _head_bytes = 0  # of a request whose head is not whole yet

        def connection_made(self, transport: Any) -> None:
            super().connection_made(_Transport(transport, self._arrives))  # type: ignore[arg-type] # has its methods
            self.since = self.loop.time()
            if len(self.connections) > connections:
                self._refuse(503, "the server has too many connections; try again later")

        def data_received(self, data: bytes) -> None:
            begun, request = 0, self.scope
            while begun < len(data) and not self.transport.is_closing():  # else nobody reads it any more
                piece = data[begun : begun + _HEAD_BYTES - self._head_bytes]
                begun += len(piece)
                in_body, cycle = self._in_body(), self.cycle
                super().data_received(piece)
                all_head = cycle is self.cycle and not in_body
                self._head_bytes = self._head_bytes + len(piece) if all_head else 0
                if self._head_bytes >= _HEAD_BYTES:
                    self._refuse(431, f"the first line and the headers have more than {_HEAD_BYTES:,} bytes")
            if not self._arrives():
                self.since = None
            elif self.since is None or self.scope is not request:
                self.since = self.loop.time()
            if len(self.pipeline) > _AHEAD:
                self._reset()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.unread_since = self.loop.time()

        def resume_writing(self) -> None:
            super().resume_writing()
            self.unread_since = None

        def end_if_late(self, now: float) -> None:
            """Ends the connection if its client is too slow; called about every second."""
            if self.transport.is_closing():
                self.unread_since = self.unread_since or now  # what is left to send, or to be read by nobody
            elif self.since is not None and (self.flow.read_paused or self.pipeline):
                self.since = now  # the client waits for this server
            elif self.since is not None and now - self.since > request_secs:
                self._refuse(408, f"the request took more than {request_secs:g} s to arrive")
            if self.unread_since is not None and now - self.unread_since > answer_secs:
                self._reset()

        def end_if_idle(self) -> None:
            """Ends the connection if nothing is under way on it, without waiting for its client."""
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.get_write_buffer_size():
                self.transport.abort()

        def _in_body(self) -> bool:
            return self.cycle is not None and self.cycle.more_body

        def _arrives(self) -> bool:
            """Whether a request has begun to arrive, and is not whole."""
            head = self.scope is not None and (self.cycle is None or self.cycle.scope is not self.scope)
            return head or self._head_bytes > 0 or self._in_body()

        def _reset(self) -> None:
            """Ends the connection at once, for the kernel too, which would go on to offer what is not read."""
            if (own := self.transport.get_extra_info("socket")) is not None:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

        def _refuse(self, status: int, message: str) -> None:
            body = b'{"error":"%s"}' % message.encode()
            head = b"HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\n" % status
            between = self.cycle is None or not self.cycle.response_started or self.cycle.response_complete
            if between and not self.pipeline:
                self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
            self.transport.close()

    return Connection


class _Transport:
    """A transport whose `close` lets the client read the last answer while it still sends.

    A socket that is closed with bytes unread resets the connection, and the client may lose the answer that it is to
    read. So where a request has not arrived as a whole, only this server's side is closed at first, and what comes is
    dropped: until the client closes its side, or is late.

    Args:
      transport: of the event loop.
      arrives: whether a request has not arrived as a whole.
    """

    def __init__(self, transport: Any, arrives: Callable[[], bool]) -> None:
        self._transport = transport
        self._arrives = arrives
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._ended or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self._ended:  # by another answer, to what came before this request was known to be wrong
            self._transport.write(data)

    def close(self) -> None:
        if self.is_closing() or not self._arrives() or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self._transport.resume_reading()
        self._ended = True


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
