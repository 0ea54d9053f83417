"""Clients of a model server that send what no honest client sends, byte for byte, and what each must be answered.

A client sends until it is answered, so an answer that never comes is found by what was sent until then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence

PATIENCE = 300.0  # seconds, far beyond what any answer takes
MOST = 16 << 20  # bytes that are sent at most: far beyond every limit of a head, and of what a buffer on the way holds


@dataclasses.dataclass(frozen=True)
class Client:
    """A hostile client.

    Attributes:
      sends: the pieces that it sends, given the target of a prediction and its body.
      answers: the statuses that it may be given, of all answers until the connection ends.
    """

    sends: Callable[[str, bytes], Iterable[bytes]]
    answers: tuple[tuple[int, ...], ...]


def head(target: str, *lines: str, method: str = "POST") -> bytes:
    """The head of a request."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode("latin-1")


def whole(target: str, body: bytes, *lines: str) -> bytes:
    """A good request."""
    return head(target, f"Content-Length: {len(body)}", *lines) + body


def read_all(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def converse(port: int, pieces: Iterable[bytes]) -> tuple[bytes, int]:
    """Sends pieces until there is an answer; returns all that was answered until the end, and how much was sent."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = 0
        with contextlib.suppress(OSError):
            for piece in pieces:
                if sent > MOST or select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(piece)
                sent += len(piece)
        return read_all(connection), sent


def statuses(answer: bytes) -> tuple[int, ...]:
    """Of all answers on a connection."""
    return tuple(map(int, re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)))


def _refused(*lines: str, then: Sequence[bytes] = (), status: tuple[int, ...] = (400,)) -> Client:
    """A head with some lines, and what follows it; then a whole request, which must not be answered."""

    def sends(target: str, body: bytes) -> Iterator[bytes]:
        hidden = whole("/admin/roll_back", b"")
        yield head(target, *lines) + (b"" if then else hidden)
        yield from then

    return Client(sends, tuple((each,) for each in status))


def _chunked(*pieces: bytes) -> Client:
    return _refused("Transfer-Encoding: chunked", then=pieces, status=(411,))


def _endless(piece: bytes) -> list[bytes]:
    return [piece] * (MOST // len(piece) + 2)


def _bytewise(target: str, body: bytes) -> Iterator[bytes]:
    request = whole(target, body, "Connection: close")
    return (request[i : i + 1] for i in range(len(request)))


def _line(end: bytes) -> Callable[[str, bytes], Iterator[bytes]]:
    """A first line of 100 KB, which ends so."""
    return lambda target, body: iter([f"POST {target}?{'x' * 100_000}".encode() + end])


_HIDDEN = b"0\r\n\r\n" + whole("/admin/roll_back", b"")
CLIENTS = {
    "a good request in pieces of a byte": Client(_bytewise, ((200,),)),
    "chunks": _chunked(b'f\r\n{"instances":[1\r\n2\r\n]}\r\n0\r\n\r\n'),
    "chunks of a byte, without end": _chunked(*_endless(b"1\r\nx\r\n" * 2000)),
    "chunk extensions without end": _chunked(b"1;a=b", *_endless(b";name=value" * 2000)),
    "trailers without end": _chunked(b"1\r\nx\r\n0\r\n", *_endless(b"X-Trailer: 1\r\n" * 2000)),
    "a trailer that looks like a header": _chunked(b"0\r\nAuthorization: Bearer x\r\nCookie: 3\r\n\r\n"),
    "a request behind chunks": _chunked(_HIDDEN),
    "chunks that wait for 100 Continue": _refused(
        "Transfer-Encoding: chunked", "Expect: 100-continue", then=[b""], status=(411,)
    ),
    "headers without end": Client(
        lambda target, body: itertools.chain([head(target)[:-2]], _endless(b"X-Filler: 1\r\n" * 2000)), ((431,),)
    ),
    "a header without end": Client(
        lambda target, body: itertools.chain([head(target)[:-2], b"X-Filler: "], _endless(b"x" * 20_000)), ((431,),)
    ),
    "a name of a header without end": Client(
        lambda target, body: itertools.chain([head(target)[:-2]], _endless(b"x" * 20_000)), ((431,),)
    ),
    "a first line of 100 KB": Client(_line(b" HTTP/1.1\r\nHost: localhost\r\n\r\n"), ((431,),)),
    "half a first line of 100 KB": Client(_line(b""), ((431,),)),
    "empty lines without end": Client(lambda target, body: _endless(b"\r\n" * 10_000), ((431,),)),
    "a length and chunks": _refused(
        "Content-Length: 5", "Transfer-Encoding: chunked", then=[_HIDDEN], status=(400, 411)
    ),
    "chunks and a length": _refused(
        "Transfer-Encoding: chunked", "Content-Length: 5", then=[_HIDDEN], status=(400, 411)
    ),
    "two lengths": _refused("Content-Length: 0", "Content-Length: 60"),
    "two lengths in one": _refused("Content-Length: 0, 0"),
    "the same length twice": _refused("Content-Length: 0", "Content-Length: 0"),
    "a length with a sign": _refused("Content-Length: +0"),
    "a length in hexadecimal": _refused("Content-Length: 0x10"),
    "a length of 30 digits": _refused(f"Content-Length: {'9' * 30}"),
    "a header over two lines": _refused("Content-Length: 0", "X-Folded: a", " Content-Length: 60"),
    "a space before the colon": _refused("Transfer-Encoding : chunked"),
    "no colon": _refused("Transfer-Encoding chunked"),
    "a bare carriage return": _refused("X-A: a\rTransfer-Encoding: chunked"),
    "a zero byte": _refused("X-A: a\0b"),
    **{
        f"Transfer-Encoding: {coding}": _refused(f"Transfer-Encoding: {coding}", status=(400, 411))
        for coding in ("xchunked", "identity", "chunked, identity", "identity, chunked", "Chunked", "\tchunked", "")
    },
    "two transfer encodings": _refused(
        "Transfer-Encoding: identity", "Transfer-Encoding: chunked", then=[_HIDDEN], status=(400, 411)
    ),
    "what is not HTTP": Client(lambda target, body: [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"], ((400,),)),
    "CONNECT": Client(lambda target, body: [head("localhost:80", method="CONNECT")], ((400,),)),
    "a length that is too large": _refused(f"Content-Length: {1 << 40}", then=[b"x" * 300_000], status=(413,)),
    "a compressed body": _refused("Content-Length: 9", "Content-Encoding: gzip", then=[b"123"], status=(415,)),
}
