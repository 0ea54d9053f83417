"""The client of Google's library: one per process, with bounded waits, retries and a pool of connections."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CONNECTIONS = 96  # maximum per process: one for each thread that reads images, and for each of the pools below
TRANSFERS = 16  # requests at once for the pieces of large objects
STALL_SECONDS = 60.0  # how long a connection, or the next bytes of an answer, may take
RETRY_SECONDS = 120.0  # how long a request is repeated


@functools.cache
def client() -> Any:
    """The client of Google's library, one per process."""
    from google.cloud import storage as gcs  # imported here, because it takes a while: only if gs:// is used
    from requests.adapters import HTTPAdapter

    made = gcs.Client(project=None)  # only creating buckets needs a project
    # The default is ten; further connections are discarded after use.
    adapter = HTTPAdapter(pool_maxsize=CONNECTIONS)
    for scheme in ("https://", "http://"):
        made._http.mount(scheme, adapter)  # private: Google's own advice, and no other way
    return made


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads that download pieces of objects; they start when they are needed."""
    return ThreadPoolExecutor(TRANSFERS, thread_name_prefix="gcs")


def patience() -> dict[str, Any]:
    """The arguments of a request that bound its waits, and repeat it after 429, 5xx and broken connections.

    By default, the client repeats only requests that name the generation that they expect. Each of ours may be
    repeated: it reads, writes a complete object, or removes one.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    return {"timeout": STALL_SECONDS, "retry": DEFAULT_RETRY.with_timeout(RETRY_SECONDS)}


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
