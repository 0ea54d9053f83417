"""What the errors of Google's client libraries mean, and what to do. They are identified by name, without an import."""

from __future__ import annotations

import os
import re

from schemas import outage
from schemas.storage import gcs_client
from schemas.storage.redact import redacted

_REQUEST = re.compile(r"^(\d{3} )?(GET|POST|PUT|PATCH|DELETE|HEAD) \S+: ")  # precedes the server's own message
_LOG_IN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_REFUSED = "the Google Cloud credentials{source} were refused: {message}"
_EXPLAINED = {
    "NotFound": "no such object or bucket, or it was replaced in the meantime",
    "DefaultCredentialsError": f"no Google Cloud credentials were found. {_LOG_IN}",
    "RefreshError": f"{_REFUSED}. {_LOG_IN}",
    "OAuthError": f"{_REFUSED}. {_LOG_IN}",
    "Unauthorized": f"{_REFUSED}. {_LOG_IN}",
    "Forbidden": "permission denied{permission}: {message}. The account needs the role roles/storage.objectUser on the "
    "bucket",
}


def explain(error: Exception) -> str | None:
    """The message of an error of Google's client libraries in one line, without secrets; None for any other error."""
    if isinstance(error, outage.GaveUp):
        return str(error)
    if _library(error) in ("requests", "urllib3"):  # of a request that is not repeated
        return f"{failure(error)}. Check the network, and run the command again"
    if _library(error) == "google":
        file = gcs_client.credentials_file()
        if type(error).__name__ == "DefaultCredentialsError" and os.environ.get(_VARIABLE):
            return f"{_VARIABLE} is {file}, and no credentials can be read from it: {_message(error)}"
        source = f" in {file}" if os.path.exists(file) else " of this machine"
        return _EXPLAINED.get(type(error).__name__, "{message}").format(
            message=_message(error), source=source, permission=_permission(error)
        )
    return None


def _permission(error: BaseException) -> str:
    """The permission that a request needed, unless the server names it."""
    request = getattr(getattr(error, "response", None), "request", None)
    if request is None or "storage.objects." in _message(error):
        return ""
    reads = "get" if "/o/" in request.url else "list"
    needed = {"GET": reads, "HEAD": reads, "DELETE": "delete"}.get(request.method, "create")
    return f" (storage.objects.{needed})"


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def failure(error: BaseException) -> str:
    """What happened to a single request: the status of its answer, or what the network did."""
    if type(error).__name__ == "TransportError" and error.args and isinstance(error.args[0], Exception):
        error = error.args[0]  # while a token was asked for
    if _library(error) == "google":
        code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
        return f"status {int(code)}" if code else _message(error)
    if "Timeout" in type(error).__name__ or "timed out" in str(error):
        return f"nothing arrived for {outage.STALL_SECONDS:g} s"
    return f"the connection could not be made, or was cut ({type(error).__name__})"


def _message(error: BaseException) -> str:
    first = error.args[0] if error.args and isinstance(error.args[0], str) else error  # without the raw answer
    message = redacted(_answered(error) or str(getattr(error, "message", None) or first))
    return " ".join(_REQUEST.sub("", message).split()).rstrip(".")


def _answered(error: BaseException) -> str:
    """What the server said: of an upload, Google's client quotes the whole answer."""
    try:
        return str(getattr(error, "response", None).json()["error"]["message"])  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""
