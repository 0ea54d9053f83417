"""What a request is answered with when it gets no predictions."""

from __future__ import annotations

from schemas.errors import MillraceError


class Refused(MillraceError):
    """A request that is answered with an error: an HTTP status, and a message for its client."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after  # seconds


def bad_request(message: str) -> Refused:
    """The request is wrong: its client must change it."""
    return Refused(400, message)
