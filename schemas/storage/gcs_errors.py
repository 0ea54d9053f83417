"""Explains the errors of Google's client library of Cloud Storage: what they mean, and what to do.

They are identified by name, without an import of the library.
"""

from __future__ import annotations

import os
import re

from schemas import retries
from schemas.storage.store import redacted

_REQUEST = re.compile(r"^(\d{3} )?(GET|POST|PUT|PATCH|DELETE|HEAD) \S+: ")  # precedes the server's own message
_LOG_IN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_TRANSIENT = (408, 429, *range(500, 600))  # the status of an answer that says nothing about the request
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
    """Returns the message of an error of Google's client libraries in one line, without secrets;

    None for any other error.
    """
    if type(error).__name__ == "RetryError":
        last = error.__cause__ or error
        return (
            f"Google Cloud Storage did not do it within {retries.RETRY_SECONDS:g} s of retries; the last failure: "
            f"{failure(last)}. Check its status and the network, and run the command again"
        )
    if _is_transient(error):  # while the command ends, when nothing is repeated
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
    """The permission that a request needed, unless the server names it."""
    request = getattr(getattr(error, "response", None), "request", None)
    if request is None or "storage.objects." in _message(error):
        return ""
    reads = "get" if "/o/" in request.url else "list"
    needed = {"GET": reads, "HEAD": reads, "DELETE": "delete"}.get(request.method, "create")
    return f" (storage.objects.{needed})"


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _is_transient(error: BaseException) -> bool:
    """Whether the server's answer says nothing about the request."""
    code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return _library(error) == "google" and code in _TRANSIENT


def failure(error: BaseException) -> str:
    """Describes the failure of a single request: the status of its answer, or what the network did."""
    if type(error).__name__ == "TransportError" and error.args and isinstance(error.args[0], Exception):
        error = error.args[0]  # while a token was asked for
    if _library(error) == "google":
        code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
        return f"status {int(code)}" if code else _message(error)
    return network_failure(error)


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


def network_failure(error: BaseException) -> str:
    """Describes what the network did to a single request."""
    if "Timeout" in type(error).__name__ or "timed out" in str(error):
        return f"nothing arrived for {retries.STALL_SECONDS:g} s"
    return f"the connection could not be made, or was cut ({type(error).__name__})"


def credentials_file() -> str:
    """Returns the file that Google's libraries and TensorFlow look for; it may not exist."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    return os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )
