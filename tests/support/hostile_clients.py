"""Clients of a model server that send what no honest client sends, byte for byte.

A client sends until it is answered, or has sent more than any buffer on the way holds.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.support.model_server import PATIENCE

MOST = 16 << 20  # bytes that are sent at most: far beyond every limit of a head, and of what a buffer on the way holds
Client = Callable[[str, bytes], Iterable[bytes]]  # the pieces that it sends, of the target of a prediction and its body


def head(target: str, *lines: str, method: str = "POST") -> bytes:
    """The head of a request."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode("latin-1")


def whole(target: str, body: bytes, *lines: str) -> bytes:
    """A good request."""
    return head(target, f"Content-Length: {len(body)}", *lines) + body


def read_all(connection: socket.socket) -> bytes:
    """What comes until the connection ends. Raises TimeoutError if that takes longer than anybody's patience."""
    parts: list[bytes] = []
    end = time.monotonic() + PATIENCE
    with contextlib.suppress(ConnectionResetError):
        while True:
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError(
                    f"after {PATIENCE} s the connection has not ended; it sent {sum(map(len, parts))} bytes"
                )
            connection.settimeout(left)
            if not (part := connection.recv(1 << 16)):
                return b"".join(parts)
            parts.append(part)
    return b"".join(parts)


def converse(connection: socket.socket, pieces: Iterable[bytes]) -> bytes:
    """Sends pieces until there is an answer; returns all that was answered until the end."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = 0
    with contextlib.suppress(OSError):
        for piece in pieces:
            if sent > MOST or select.select([connection], [], [], 0)[0]:
                break
            connection.sendall(piece)
            sent += len(piece)
    return read_all(connection)


def statuses(answer: bytes) -> tuple[int, ...]:
    """Of all answers on a connection."""
    return tuple(map(int, re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)))


def _headed(*lines: str, then: Sequence[bytes] = ()) -> Client:
    """A head with some lines, and what follows it; or else a good request, hidden behind it."""

    def sends(target: str, body: bytes) -> Iterator[bytes]:
        hidden = whole(target, body, "Connection: close")
        yield head(target, *lines) + (b"" if then else hidden)
        yield from (piece.replace(b"HIDDEN", hidden) for piece in then)

    return sends


def _endless(piece: bytes) -> list[bytes]:
    return [piece] * (MOST // len(piece) + 2)


def _chunked(*pieces: bytes) -> Client:
    return _headed("Transfer-Encoding: chunked", "Connection: close", then=pieces)


def _long_head(piece: bytes) -> Client:
    return lambda target, body: itertools.chain([head(target)[:-2]], _endless(piece))


def _bytewise(target: str, body: bytes) -> Iterator[bytes]:
    request = whole(target, body, "Connection: close")
    return (request[i : i + 1] for i in range(len(request)))


_HIDDEN = b"0\r\n\r\nHIDDEN"
CLIENTS: dict[str, Client] = {
    "a good request in pieces of a byte": _bytewise,
    "chunks of a byte, without end": _chunked(*_endless(b"1\r\nx\r\n" * 2000)),
    "chunk extensions without end": _chunked(b"1;a=b", *_endless(b";name=value" * 2000)),
    "trailers without end": _chunked(b"1\r\nx\r\n0\r\n", *_endless(b"X-Trailer: 1\r\n" * 2000)),
    "a request behind chunks": _headed("Transfer-Encoding: chunked", then=[_HIDDEN]),
    "headers without end": _long_head(b"X-Filler: 1\r\n" * 2000),
    "a name of a header without end": _long_head(b"x" * 20_000),
    "a first line of 100 KB": lambda target, body: [f"POST {target}?{'x' * 100_000} HTTP/1.1\r\n\r\n".encode()],
    "empty lines without end": lambda target, body: _endless(b"\r\n" * 10_000),
    "a length and chunks": _headed("Content-Length: 5", "Transfer-Encoding: chunked", then=[_HIDDEN]),
    "two lengths": _headed("Content-Length: 0", "Content-Length: 60"),
    "two lengths in one": _headed("Content-Length: 0, 0"),
    "a length with a sign": _headed("Content-Length: +0"),
    "a length of 30 digits": _headed(f"Content-Length: {'9' * 30}"),
    "a header over two lines": _headed("Content-Length: 0", "X-Folded: a", " Content-Length: 60"),
    "a space before the colon": _headed("Transfer-Encoding : chunked"),
    "a bare carriage return": _headed("X-A: a\rTransfer-Encoding: chunked"),
    "a zero byte": _headed("X-A: a\0b"),
    **{
        f"Transfer-Encoding: {coding}": _headed(f"Transfer-Encoding: {coding}")
        for coding in ("xchunked", "identity, chunked", "\tchunked")
    },
    "what is not HTTP": lambda target, body: [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"],
    "CONNECT": lambda target, body: [head("localhost:80", method="CONNECT")],
    "a length that is too large": _headed(f"Content-Length: {1 << 40}", then=[b"x" * 300_000]),
}
