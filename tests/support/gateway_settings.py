"""What the gateway to Google Cloud Storage is told: the faults that it injects, and who may log in; and its counts."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import itertools
import re
import threading
import time
from collections.abc import Iterator


@dataclasses.dataclass
class Fault:
    """A fault of the first `times` requests whose `METHOD path?query`, and name of an upload, matches `where`.

    Attributes:
      where: a regular expression.
      times: how many requests fail.
      after: how many matching requests pass before the first one that fails.
      status: the status that is returned without asking the server, such as 429 or 503.
      cut: the connection ends after this many bytes of the answer's body; the server has performed the request.
      stall: seconds for which the answer stands still after `cut` bytes, before its connection ends.
      cut_upload: the connection ends after this many bytes of a part of an upload; the server has kept a beginning.
      wait: seconds before the request is passed on.
      flip: the first byte of the answer's body arrives changed.
    """

    where: str
    times: int = 1
    after: int = 0
    status: int | None = None
    cut: int | None = None
    stall: float = 0.0
    cut_upload: int | None = None
    wait: float = 0.0
    flip: bool = False


class Faults:
    """The pending faults. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: list[Fault] = []
        self.injected = 0
        self.requests: list[str] = []

    def set(self, *faults: Fault) -> None:
        """Replaces the pending faults, and resets the counts to 0."""
        with self._lock:
            self._coming = [dataclasses.replace(fault) for fault in faults]
            self.injected = 0
            self.requests = []

    def meet(self, request: str) -> Fault | None:
        """Returns the fault of a request, after its `wait`; None if it has none."""
        with self._lock:
            self.requests.append(request)
            fault = next((f for f in self._coming if f.times and re.search(f.where, request)), None)
            if fault is None:
                return None
            if fault.after:
                fault.after -= 1
                return None
            fault.times -= 1
            self.injected += 1
        time.sleep(fault.wait)
        return fault


@dataclasses.dataclass
class Traffic:
    """What passed through the gateway since the faults were set. Thread-safe.

    Attributes:
      connections: how many clients have opened.
      at_once: requests that were under way, at most.
      largest_body: bytes of a request, at most.
    """

    connections: int = 0
    at_once: int = 0
    largest_body: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0

    def reset(self) -> None:
        with self._lock:
            self.connections = self.at_once = self.largest_body = 0

    def connected(self) -> None:
        with self._lock:
            self.connections += 1

    @contextlib.contextmanager
    def request(self, size: int) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
            self.at_once = max(self.at_once, self._under_way)
            self.largest_body = max(self.largest_body, size)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1


REFRESH, SERVICE_ACCOUNT, METADATA, FEDERATION, IMPERSONATION = (
    "refresh_token",
    "service_account",
    "metadata",
    "federation",
    "impersonation",
)
METADATA_PATH = "/computeMetadata/v1/"


@dataclasses.dataclass
class Logins:
    """The settings, and the tokens that were issued. Thread-safe.

    Attributes:
      checked: requests need a valid token.
      expires_in: seconds for which a token is valid.
      read_only: tokens only allow to read.
      refused: no token is issued.
    """

    checked: bool = False
    expires_in: float = 3600.0
    read_only: bool = False
    refused: bool = False
    issued: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._valid: dict[str, float] = {}
        self._numbers = itertools.count(1)

    def set(self, **settings: float) -> None:
        """Changes settings, and forgets all tokens."""
        with self._lock:
            for name, value in settings.items():
                setattr(self, name, value)
            self.issued = []
            self._valid = {}

    def answer(self, path: str, body: str) -> tuple[int, dict[str, object] | str] | None:
        """The status and the answer to a request for a token; None for other requests."""
        kind = _kind(path, body)
        if kind is None:
            return _of_metadata(path) if path == "/" or path.startswith(METADATA_PATH) else None
        if self.refused:
            return 400, {"error": "invalid_grant", "error_description": "the account was removed"}
        token = self._issue(kind)
        expires = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.expires_in)
        if kind == IMPERSONATION:
            return 200, {"accessToken": token, "expireTime": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}
        kinds = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"} if kind == FEDERATION else {}
        return 200, {"access_token": token, "expires_in": int(self.expires_in), "token_type": "Bearer", **kinds}

    def refusal(self, method: str, authorization: str | None) -> tuple[int, str] | None:
        """The status and message for a request without the right to what it asks; None for all others."""
        if not self.checked:
            return None
        token = (authorization or "").removeprefix("Bearer ")
        with self._lock:
            valid = self._valid.get(token, 0) > time.monotonic()
        if not valid:
            return 401, "Invalid Credentials" if token else "Anonymous caller does not have storage.objects access"
        if self.read_only and method not in ("GET", "HEAD"):
            return 403, "jobs@project.iam.gserviceaccount.com does not have storage.objects.create access"
        return None

    def _issue(self, kind: str) -> str:
        with self._lock:
            token = f"ya29.{kind}-{next(self._numbers)}"
            self.issued.append(kind)
            self._valid[token] = time.monotonic() + self.expires_in
        return token


def _kind(path: str, body: str) -> str | None:
    if path.startswith(f"{METADATA_PATH}instance/service-accounts/") and "/token" in path:
        return METADATA
    if path.endswith(":generateAccessToken"):
        return IMPERSONATION
    if path == "/sts":
        return FEDERATION
    if path == "/token" or path.startswith("/oauth2/"):
        return REFRESH if "refresh_token" in body else SERVICE_ACCOUNT
    return None


def _of_metadata(path: str) -> tuple[int, dict[str, object] | str]:
    """What a machine's metadata server says of its project and service account."""
    if "service-accounts" in path:
        account: dict[str, object] = {
            "email": "jobs@project.iam.gserviceaccount.com",
            "scopes": ["storage"],
            "aliases": ["default"],
        }
        return 200, account if "recursive" in path else "default/\n"
    return 200, "googleapis.com" if "universe" in path else "project"
