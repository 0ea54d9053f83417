"""Asks Dataflow about jobs, over its API, and explains Dataflow's errors."""

from __future__ import annotations

import collections
import contextlib
import functools
import http
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_jobs.engines.remote_job import Unreachable
from schemas.dataset.holders import JobReference
from schemas.errors import MillraceError
from schemas.retries import service_request
from schemas.storage.store import redacted

LONGEST = 300  # the most characters shown of the service's own message
_LOG_IN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
_TO_DO = {
    400: "correct the option that it names",
    401: f"it does not know the credentials: {_LOG_IN}",
    403: "the account needs roles/dataflow.developer, and the project the Dataflow API",
    404: "check --project, --region and --dataflow_endpoint",
    409: "give another --job_name",
}
_LATER = "run the command again later"
_REQUEST = re.compile(r"^(GET|POST|PUT) \S+: ")  # the beginning of a message, before the service's own message


def explain(error: BaseException) -> str | None:
    """Explains a failed request to Dataflow in one line, without secrets; returns None for any other error."""
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
            detail = "" if words.startswith("<") else f": {words}"  # a page of HTML comes from a proxy, and is left out
            return f"it answers {status.value} {status.phrase}{detail}; {_TO_DO.get(status.value, _LATER)}"
        case _:
            return None


def _words(message: str) -> str:
    """The service's message on one line, without secrets, and shortened."""
    line = " ".join(redacted(message).split()).rstrip(".")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


ANSWER_SECONDS = 60.0  # the longest time to wait for an answer, repeated requests included
EXPLAIN_SECONDS = 50.0  # how long to wait for the messages of a job that has failed; Beam waits as long
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class DataflowJob:
    """A job of Dataflow. Implements `beam_jobs.engines.remote_job.RemoteJob`."""

    poll_seconds = 2.0
    watches_workers = True

    def __init__(self, reference: JobReference) -> None:
        self._reference = reference
        self.id = reference.id or reference.name or ""
        self.place = reference.url or console(reference.project, reference.region, reference.id)

    def state(self) -> str:
        with _answers():
            job = self._client("Jobs").get_job(self._named, **service_request(ANSWER_SECONDS))
        return str(job.current_state.name).removeprefix("JOB_STATE_")

    def counters(self) -> Mapping[str, int]:
        from beam_jobs.core.workers import NAMESPACE

        with _answers():
            metrics = self._client("Metrics").get_job_metrics(self._named, **service_request(ANSWER_SECONDS)).metrics
        committed: collections.Counter[str] = collections.Counter()
        tentative: collections.Counter[str] = collections.Counter()
        for metric in metrics:
            if metric.name.origin == "user" and metric.name.context.get("namespace") == NAMESPACE:
                sums = tentative if metric.name.context.get("tentative") == "true" else committed
                sums[metric.name.name] += int(metric.scalar or 0)
        return {name: committed[name] or tentative[name] for name in committed | tentative}

    def errors(self) -> Sequence[str]:
        deadline = time.monotonic() + EXPLAIN_SECONDS
        while not (texts := self._error_messages()) and time.monotonic() < deadline:
            time.sleep(self.poll_seconds)
        return texts

    def cancel(self) -> None:
        from google.cloud import dataflow

        update = {"requested_state": dataflow.JobState.JOB_STATE_CANCELLED}
        with _answers():
            self._client("Jobs").update_job({**self._named, "job": update}, **service_request(ANSWER_SECONDS))

    def _error_messages(self) -> list[str]:
        """The texts of the job's error messages, in the order of time."""
        from google.cloud import dataflow

        least = dataflow.JobMessageImportance.JOB_MESSAGE_ERROR
        request = {**self._named, "minimum_importance": least}
        with _answers():
            messages = list(self._client("Messages").list_job_messages(request, **service_request(ANSWER_SECONDS)))
        return [m.message_text for m in sorted(messages, key=lambda m: m.time) if m.message_importance == least]

    @functools.cached_property
    def _named(self) -> dict[str, str | None]:
        """The fields that name the job in a request: project, region and id.

        A job that a Flex Template began has no id in the reference, so its id is looked up by the job's name.
        """
        job = self._reference
        place = {"project_id": job.project, "location": job.region}
        if job.id:
            return {**place, "job_id": job.id}
        with _answers():
            listing = self._client("Jobs").list_jobs(place, **service_request(ANSWER_SECONDS))
            named = [entry for entry in listing if entry.name == job.name]
        if len(named) != 1:
            raise MillraceError(
                f"{job}: {len(named)} jobs of this name were found in project {job.project}, region {job.region}; "
                "expected the one that the Flex Template began"
            )
        return {**place, "job_id": named[0].id}

    @functools.cache  # noqa: B019 - lives as long as the command
    def _client(self, service: str) -> Any:
        """The client of a service of Dataflow's API: "Jobs", "Metrics" or "Messages"."""
        from google.cloud import dataflow

        options: dict[str, Any] = {"credentials": _credentials(self._reference)}
        endpoint = (self._reference.endpoint or "").rstrip("/")
        if endpoint:
            # Chooses as Beam does: REST for an endpoint on this machine, gRPC for other endpoints.
            rest = "localhost" in endpoint or "sandbox" in endpoint
            options["transport"] = "rest" if rest else None
            options["client_options"] = {"api_endpoint": endpoint if rest else endpoint.rpartition("://")[2]}
        return getattr(dataflow, f"{service}V1Beta3Client")(**options)


def console(project: str | None, region: str | None, job_id: str) -> str:
    """Returns the address of a job's page in the Google Cloud console."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job_id}?project={project}"


def check_credentials(job: JobReference) -> None:
    """Checks that there are credentials for submitting a job. Beam itself would go on without credentials.

    Raises:
      MillraceError: there are no usable credentials.
    """
    from google.auth import default
    from google.auth.exceptions import GoogleAuthError

    if job.no_auth:
        return
    try:
        default(scopes=_SCOPES)
    except GoogleAuthError as error:
        raise MillraceError(f"Dataflow: {explain(error)}; nothing was submitted") from error


def _credentials(job: JobReference) -> Any:
    """Makes the credentials for a job's requests; None means the credentials of the environment."""
    from google.auth import credentials, default, impersonated_credentials

    if job.no_auth:
        return credentials.AnonymousCredentials()
    if job.impersonate is None:
        return None
    *delegates, target = [account.strip() for account in job.impersonate.split(",")]
    source, _ = default(scopes=_SCOPES)
    return impersonated_credentials.Credentials(source, target, _SCOPES, delegates)


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """Turns any error in the block, such as missing credentials, into Unreachable, with a message of one line."""
    try:
        yield
    except Exception as error:
        text = " ".join(redacted(str(error)).split())[:500]
        raise Unreachable(explain(error) or f"{type(error).__name__}: {text}") from error
