"""Who may ask: the token, and the names that the server answers to.

A page in somebody's browser may send requests to addresses of their machine. The names in `Host` keep out a page whose
own name was made to lead here (DNS rebinding), and `Origin`, which browsers send along, keeps out all other pages.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence

from schemas import storage
from schemas.errors import UsageError
from trainer.serving.errors import Refused
from trainer.serving.options import TOKEN_VARIABLE as VARIABLE

SHORTEST = 16  # characters of a token
_KNOWN = 64  # names that are remembered as allowed

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
