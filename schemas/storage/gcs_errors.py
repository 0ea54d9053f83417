"""Explains the errors of Google's client library of Cloud Storage: what they mean, and what to do.

Errors are recognized by the names of their class and module, so that the library need not be imported.
"""

from __future__ import annotations

import os
import re

from schemas import retries
from schemas.storage.store import redacted

_REQUEST = re.compile(r"^(\d{3} )?(GET|POST|PUT|PATCH|DELETE|HEAD) \S+: ")  # stands before the server's own message
_LOG_IN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_TRANSIENT = (408, 429, *range(500, 600))  # statuses of a busy or broken server: the request may be right
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
    """Returns the message of an error of Google's client libraries, in one line and without secrets.

    Returns None if the error comes from another library.
    """
    if type(error).__name__ == "RetryError":
        last = error.__cause__ or error
        return (
            f"Google Cloud Storage did not do it within {retries.RETRY_SECONDS:g} s of retries; the last failure: "
            f"{failure(last)}. Check its status and the network, and run the command again"
        )
    if _is_transient(error):  # happens while the command ends, because then no request is repeated
        return f"Google Cloud Storage did not do it: {failure(error)}. Check its status and the network"
    if _library(error) in ("requests", "urllib3"):
        return f"{failure(error)}. Check the network, and run the command again"
    if _library(error) == "google":
        file = credentials_file()
        if type(error).__name__ == "DefaultCredentialsError" and os.environ.get(_VARIABLE):
            return f"{_VARIABLE} is {file}, and no credentials can be read from it: {_message(error)}"
        source = f" in {file}" if os.path.exists(file) else " of this machine"
        return _EXPLAINED.get(type(error).__name__, "{message}").format(
            message=_message(error), source=source, permission=_permission(error)
        )
    return None


def _permission(error: BaseException) -> str:
    """Returns the permission that a refused request needed, such as ` (storage.objects.get)`.

    Returns '' if the server's message names the permission.
    """
    request = getattr(getattr(error, "response", None), "request", None)
    if request is None or "storage.objects." in _message(error):
        return ""
    reads = "get" if "/o/" in request.url else "list"
    needed = {"GET": reads, "HEAD": reads, "DELETE": "delete"}.get(request.method, "create")
    return f" (storage.objects.{needed})"


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _is_transient(error: BaseException) -> bool:
    """Whether the server was busy or broken, so that the same request may succeed later."""
    code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return _library(error) == "google" and code in _TRANSIENT


def failure(error: BaseException) -> str:
    """Describes why a single request failed: the status of the answer, or what happened on the network."""
    if type(error).__name__ == "TransportError" and error.args and isinstance(error.args[0], Exception):
        error = error.args[0]  # the error of the network while the client asked for an access token
    if _library(error) == "google":
        code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
        return f"status {int(code)}" if code else _message(error)
    return network_failure(error)


def _message(error: BaseException) -> str:
    """The error's message in one line, without secrets, the request's address and the raw answer."""
    first = error.args[0] if error.args and isinstance(error.args[0], str) else error  # further args: the raw answer
    message = redacted(_answered(error) or str(getattr(error, "message", None) or first))
    return " ".join(_REQUEST.sub("", message).split()).rstrip(".")


def _answered(error: BaseException) -> str:
    """The message in the server's JSON answer, or '' if there is none.

    The error of an upload quotes the whole JSON instead.
    """
    try:
        return str(getattr(error, "response", None).json()["error"]["message"])  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


def network_failure(error: BaseException) -> str:
    """Describes what happened on the network to a single request: no answer in time, or no connection."""
    if "Timeout" in type(error).__name__ or "timed out" in str(error):
        return f"nothing arrived for {retries.STALL_SECONDS:g} s"
    return f"the connection could not be made, or was cut ({type(error).__name__})"


def credentials_file() -> str:
    """Returns the path of the credentials file that Google's libraries and TensorFlow read. The file need not exist."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    return os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )
