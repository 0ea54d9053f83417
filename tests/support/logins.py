"""Tokens as Google issues them for every kind of credentials, on loopback, and who may do what with them.

Google's auth library asks the addresses in its credentials file, and GCE_METADATA_HOST; TensorFlow's client asks
`www.googleapis.com` and GCE_METADATA_HOST. All lead to the gateway, and to `answer`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import threading
import time

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
        expires = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=self.expires_in)
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
