"""What a request is answered with when it gets no predictions."""

from __future__ import annotations

from schemas.errors import MillraceError


class Refused(MillraceError):
    """A request that is answered with an error: an HTTP status, and a message for its client."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after  # seconds
        self.close = close  # the connection, since the rest of the request is not read


def bad_request(message: str) -> Refused:
    """The request is wrong: its client must change it."""
    return Refused(400, message)
