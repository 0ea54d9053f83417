"""How much a server takes: in a batch, in a request, on a connection."""

from __future__ import annotations

import dataclasses
import ipaddress

from millrace.store.options import StoreOptions
from schemas.errors import UsageError


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


TOKEN_VARIABLE = "MILLRACE_SERVE_TOKEN"  # noqa: S105 - the name of a variable

IMAGES = 64  # in a batch, unless the options say otherwise
ROWS = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What is served, where, and within which limits.

    Attributes:
      model_dir: a model directory, an export, or a folder of exports whose names are numbers.
      name: the model's name in addresses; None: the schema's.
      host: the address to listen on.
      port: the port; 0: a free one.
      token_file: holds a token a line; None: the environment variable's value, if there is one.
      insecure: serve without a token on an address that others can reach.
      allowed_hosts: names that requests may be sent to, besides this machine's.
      certificate, key: PEM files for TLS.
      batch_rows: rows in a batch; None: 1,024 rows or 64 images.
      wait_ms: how long the first request of a batch waits for others while the model is free.
      queue_rows: rows that may wait; None: as many as take `queue_mb`.
      queue_mb: megabytes that may wait, and that bodies may take while they are read.
      max_body_mb: megabytes of a request's body.
      max_rows: rows of a request.
      connections: at a time.
      request_secs: until a request has arrived.
      answer_secs: until a client has read its answer, and until a request that waits is refused.
      drain_secs: after a signal, until requests that are not answered yet are given up.
      poll_secs: between looks for newer exports on stores that tell of no changes.
      check_secs: that a newer export may take while it is tried out in a process of its own; 0: it is not.
      check_mb: megabytes of memory that it may take there; None: three quarters of what is available then.
      store: a folder that answered requests are stored in, before the answers leave.
      store_async: answer before they are on disk.
      retain_days: files of stored requests are removed when they are older; None: never.
      trust: load graphs that can do more than compute.
      verbose: also show TensorFlow's log.

    Raises:
      UsageError: an option is out of its range, or options do not fit together.
    """

    model_dir: str
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8501
    token_file: str | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    batch_rows: int | None = None
    wait_ms: float = 0.0
    queue_rows: int | None = None
    queue_mb: int = 256
    max_body_mb: float = 32.0
    max_rows: int = 10_000
    connections: int = 1000
    request_secs: float = 30.0
    answer_secs: float = 30.0
    drain_secs: float = 30.0
    poll_secs: float = 30.0
    check_secs: float = 300.0
    check_mb: int | None = None
    store: str | None = None
    store_async: bool = False
    retain_days: float | None = None
    trust: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise UsageError(f"--port {self.port}: must be between 0 and 65,535")
        for name in ("wait_ms", "check_secs"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name} {getattr(self, name):g}: must be 0 or more")
        positive = ("batch_rows", "queue_rows", "queue_mb", "max_body_mb", "max_rows", "connections", "check_mb")
        for name in (*positive, "request_secs", "answer_secs", "drain_secs", "poll_secs"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"--{name} {value:g}: must be more than 0")
        if self.store is None and (self.store_async or self.retain_days is not None):
            raise UsageError("--store_async and --retain_days: belong to --store")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("--certificate and --key: give both of them, or neither")

    def check_reachable(self, *, has_token: bool) -> None:
        """Refuses to serve others without a token.

        Raises:
          UsageError: the address can be reached from other machines, and nothing says who may ask.
        """
        if not (is_loopback(self.host) or has_token or self.insecure):
            raise UsageError(
                f"--host {self.host}: other machines can reach this address, and there is no token. Give --token_file "
                f"or the environment variable {TOKEN_VARIABLE}; or --insecure to answer everybody"
            )

    @property
    def storing(self) -> StoreOptions | None:
        """How requests are stored; None: they are not."""
        if self.store is None:
            return None
        return StoreOptions(path=self.store, asynchronous=self.store_async, retain_days=self.retain_days)

    def batches(self, *, images: bool) -> BatchLimits:
        """How requests are batched."""
        return BatchLimits(
            rows=self.batch_rows or (IMAGES if images else ROWS),
            wait=self.wait_ms / 1000,
            queued_rows=self.queue_rows,
            queued_bytes=self.queue_mb << 20,
            patience=self.answer_secs,
        )

    @property
    def requests(self) -> RequestLimits:
        """What a request may hold."""
        return RequestLimits(
            body_bytes=int(self.max_body_mb * 2**20), rows=self.max_rows, reading_bytes=self.queue_mb << 20
        )

    @property
    def checks(self) -> CheckLimits | None:
        """What a newer export may take while it is tried out; None: it is not."""
        return CheckLimits(self.check_secs, self.check_mb and self.check_mb << 20) if self.check_secs else None

    @property
    def limits(self) -> ConnectionLimits:
        """What a connection may take."""
        return ConnectionLimits(
            connections=self.connections, request_secs=self.request_secs, answer_secs=self.answer_secs
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
