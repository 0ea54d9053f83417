"""What the errors of Google's client mean to whoever runs a job on Dataflow, and what to do about them."""

from __future__ import annotations

import http
import re

from schemas.storage.store import redacted

LONGEST = 300  # characters of the service's own words
_LOG_IN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
_TO_DO = {
    400: "correct the option that it names",
    401: f"it does not know the credentials: {_LOG_IN}",
    403: "the account needs roles/dataflow.developer, and the project the Dataflow API",
    404: "check --project, --region and --dataflow_endpoint",
    409: "give another --job_name",
}
_LATER = "run the command again later"
_REQUEST = re.compile(r"^(GET|POST|PUT) \S+: ")  # precedes the service's own words


def explain(error: BaseException) -> str | None:
    """A failed request to Dataflow in one line, without secrets; None for any other error."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    match error:
        case RetryError() if error.cause is not None:
            return explain(error.cause)
        case GoogleAuthError():
            return f"there are no usable credentials ({_words(str(error))}): {_LOG_IN}"
        case RequestException():
            return f"nothing answers there ({type(error).__name__}): check the network and --dataflow_endpoint"
        case GoogleAPICallError() if error.code is not None:
            status, words = http.HTTPStatus(error.code), _words(_REQUEST.sub("", error.message))
            said = "" if words.startswith("<") else f": {words}"  # a page of HTML is of a proxy
            return f"it answers {status.value} {status.phrase}{said}; {_TO_DO.get(status.value, _LATER)}"
        case _:
            return None


def _words(message: str) -> str:
    line = " ".join(redacted(message).split()).rstrip(".")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
