"""The client of Google's library: one per process, with bounded waits, retries and a pool of connections.

What the errors of Google's client libraries mean, and what to do. They are identified by name, without an import.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from schemas import outage
from schemas.outage import Outage
from schemas.storage.store import network_failure, redacted

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


def failure(error: BaseException) -> str:
    """What happened to a single request: the status of its answer, or what the network did."""
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


CONNECTIONS = 96  # maximum per process: one for each thread that reads images, and for each of the pools below
OUTAGE = Outage("Google Cloud Storage")
_TRANSIENT = (408, 429, *range(500, 600))  # the status of an answer that says nothing about the request

# TensorFlow's own client reads these when it is imported, and makes the delays between its tries from them: some 100 s
# in all, where its own defaults are 190 s.
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_RETRIES", "9")
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_DELAY_TIME_US", "16000000")


@functools.cache
def client() -> Any:
    """The client of Google's library, one per process."""
    from google.cloud import storage as gcs  # imported here, because it takes a while: only if gs:// is used
    from requests.adapters import HTTPAdapter

    made = gcs.Client(project=None)  # only creating buckets needs a project

    class Adapter(HTTPAdapter):
        """Bounds how long an answer is waited for, and notes which requests the server has answered."""

        def send(self, request: Any, *args: Any, **given: Any) -> Any:
            answer = super().send(request, *args, **{**given, "timeout": OUTAGE.wait()})
            if answer.status_code not in _TRANSIENT:
                OUTAGE.answered()
            return answer

    # The default is ten; further connections are discarded after use.
    adapter = Adapter(pool_maxsize=CONNECTIONS)
    for scheme in ("https://", "http://"):
        made._http.mount(scheme, adapter)  # private: Google's own advice, and no other way
    return made


def credentials_file() -> str:
    """The file that Google's libraries and TensorFlow look for; it may not exist."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    return os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )


os.register_at_fork(after_in_child=client.cache_clear)  # a forked process has no right to its parent's connections
