"""The options of `millrace serve`."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from typing import ClassVar

from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from schemas.options import VERBOSE_HELP, Group, Options, at_least, json_flag, option, positive, positive_finite
from schemas.storage import check_addresses

TOKEN_VARIABLE = "MILLRACE_SERVE_TOKEN"  # noqa: S105 - the name of a variable

WHERE, WHO = Group("what is served, and where"), Group("who may ask")
LIMITS, STORED = Group("limits; what exceeds them is refused at once"), Group("what is stored of requests")
_where, _who, _stored = (functools.partial(option, group=group) for group in (WHERE, WHO, STORED))
_limit = functools.partial(option, group=LIMITS, check=positive)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(Options):
    """What is served, where, and within which limits.

    Raises:
      UsageError: an option is out of its range, or options do not fit together.
    """

    model_dir: str = _where(
        "a model directory, an export, or a folder of exports whose names are numbers; on gs://, too",
        metavar="DIR",
        check=check_addresses,
    )
    name: str | None = _where("the model's name in addresses (default: the schema's)", None)
    host: str = _where("the address to listen on (default: %(default)s)", "127.0.0.1")
    port: int = _where("0: a free one (default: %(default)s)", 8501)
    token_file: str | None = _who(
        "holds the token that requests must send, `Authorization: Bearer TOKEN`; several lines are several tokens "
        "(default: the environment variable MILLRACE_SERVE_TOKEN, if it is set)",
        None,
        metavar="FILE",
    )
    insecure: bool = _who("serve other machines without a token", False)
    batch_rows: int | None = _limit("rows in a batch (default: 1024, or 64 images)", None)
    wait_ms: float = _limit(
        "how long a free model waits for more rows (default: %(default)g)", 0.0, metavar="X", check=at_least(0)
    )
    queue_mb: int = _limit("megabytes that may wait (default: %(default)s)", 256)
    max_body_mb: float = _limit(
        "megabytes of a request (default: %(default)g)", 32.0, metavar="X", check=positive_finite
    )
    max_rows: int = _limit("rows of a request (default: %(default)s)", 10_000)
    poll_secs: float = _limit(
        "seconds between looks for newer exports in a bucket (default: %(default)g)", 30.0, metavar="X"
    )
    check_secs: float = _limit(
        "seconds that a newer export may take in the process that tries it out; 0: it is not tried out (default: "
        "%(default)g)",
        300.0,
        metavar="X",
        check=at_least(0),
    )
    check_mb: int | None = _limit(
        "megabytes that it may take there (default: three quarters of what is available)", None
    )
    connections: int = _limit("open connections, or requests at a time (default: %(default)s)", 1000)
    answer_secs: float = _limit("seconds that a request may wait (default: %(default)g)", 30.0, metavar="X")
    drain_secs: float = _limit(
        "seconds that the last requests have after a signal (default: %(default)g)",
        30.0,
        metavar="X",
        check=positive_finite,
    )
    store: str | None = _stored(
        "store each request's raw values with its prediction here, on disk before the answer leaves; "
        "`millrace label` joins labels to them",
        None,
        metavar="DIR",
    )
    retain_days: float | None = _stored(
        "remove stored requests that are older", None, metavar="X", check=positive_finite
    )
    trust: bool = option(TRUST_HELP, False)
    json: ClassVar[bool] = json_flag()
    verbose: bool = option(VERBOSE_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.port < 2**16:
            raise UsageError(f"--port {self.port}: must be between 0 and 65,535")
        if self.store is None and self.retain_days is not None:
            raise UsageError("--retain_days: belongs to --store")

    def check_reachable(self, *, has_token: bool) -> None:
        """Refuses to serve other machines without a token.

        Raises:
          UsageError: the address can be reached from other machines, and nothing says who may ask.
        """
        if not (self._is_loopback() or has_token or self.insecure):
            raise UsageError(
                f"--host {self.host}: other machines can reach this address, and there is no token. Give --token_file "
                f"or the environment variable {TOKEN_VARIABLE}; or --insecure to answer everybody"
            )

    def _is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
