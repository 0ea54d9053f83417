"""The client of Google's library: one per process, with bounded waits, retries and a pool of connections."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from schemas.outage import Outage

CONNECTIONS = 96  # maximum per process: one for each thread that reads images, and for each of the pools below
TRANSFERS = 16  # requests at once for the pieces of large objects
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


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads that download pieces of objects; they start when they are needed."""
    return ThreadPoolExecutor(TRANSFERS, thread_name_prefix="gcs")


def credentials_file() -> str:
    """The file that Google's libraries and TensorFlow look for; it may not exist."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    return os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )


def _forget() -> None:
    """A forked process has neither the threads nor the right to the connections of its parent."""
    client.cache_clear()
    pool.cache_clear()


os.register_at_fork(after_in_child=_forget)
