"""How much a server takes: in a batch, in a request, on a connection."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class BatchLimits:
    """How requests are batched.

    Attributes:
      rows: in a batch; a request of more is answered in several, by one version.
      cost: bytes that decoding the images of a batch may take; an image that takes more is alone.
      wait: seconds that the first request of a batch waits for others while the model is free.
      queued_rows: that may wait; None: as many as take `queued_bytes`.
      queued_bytes: of requests that may wait.
      patience: seconds that a request may wait before it is refused.
    """

    rows: int = 1024
    cost: int = 1 << 30
    wait: float = 0.0
    queued_rows: int | None = None
    queued_bytes: int = 256 << 20
    patience: float = 10.0


@dataclasses.dataclass(frozen=True)
class RequestLimits:
    """What a request may hold.

    Attributes:
      body_bytes: of a body.
      rows: in a request.
      reading_bytes: that have arrived of all bodies that are being read or answered at a time.
    """

    body_bytes: int = 32 << 20
    rows: int = 10_000
    reading_bytes: int = 256 << 20


@dataclasses.dataclass(frozen=True)
class CheckLimits:
    """What a newer export may take while it is tried out.

    Attributes:
      secs: until it has answered its warm-up requests.
      memory: resident bytes; None: most of what is available then.
    """

    secs: float
    memory: int | None = None


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """What a connection may take.

    Attributes:
      connections: at a time; more are refused.
      header_bytes: of a request's head: its first line and its headers.
      requests_ahead: that a client sends before it has the answers to earlier ones; more end the connection.
      request_secs: from a request's first byte to its last, and from the connection to the first byte.
      answer_secs: until the client has read what it was sent.
      idle_secs: between requests.
    """

    connections: int = 1000
    header_bytes: int = 32 << 10
    requests_ahead: int = 1000
    request_secs: float = 30.0
    answer_secs: float = 30.0
    idle_secs: int = 75
