"""A job of Vertex AI, through Google's client, whose patience is limited."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.errors import MillraceError, UsageError
from schemas.storage.redact import redacted

ANSWER_SECONDS = 60.0  # until the service must have answered, repeated requests included
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"})


class Unreachable(MillraceError):
    """Vertex AI did not answer, or refused."""


@dataclasses.dataclass(frozen=True)
class JobKind:
    """A kind of job.

    Attributes:
      name: its name in the methods of Google's client.
      message: its message in `google.cloud.aiplatform_v1`.
      gcloud: its name in `gcloud ai`.
    """

    name: str
    message: str
    gcloud: str


CUSTOM = JobKind("custom_job", "CustomJob", "custom-jobs")
TUNING = JobKind("hyperparameter_tuning_job", "HyperparameterTuningJob", "hp-tuning-jobs")


class VertexJobs:
    """The jobs of a kind, of a project in a region.

    Args:
      kind: CUSTOM or TUNING; an attribute, too.
      project: the project.
      region: the region.
      endpoint: another address than the region's; None: the region's.
      credentials: None: those of the environment.
    """

    def __init__(
        self, kind: JobKind, project: str, region: str, *, endpoint: str | None = None, credentials: Any = None
    ) -> None:
        self.kind = kind
        self._parent = f"projects/{project}/locations/{region}"
        self._endpoint = endpoint
        self._region = region
        self._credentials = credentials

    def create(self, job: Mapping[str, Any]) -> str:
        """Submits a job, given as fields of its message. Returns its resource name.

        Raises:
          UsageError: the client, or the service, refuses a field.
          Unreachable: it could not be submitted for another reason.
        """
        from google.api_core.exceptions import InvalidArgument
        from google.cloud import aiplatform_v1

        try:
            request = getattr(aiplatform_v1, self.kind.message)(dict(job))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise UsageError(f"Google's client refuses the job: {_one_line(error)}") from error
        with _answers("the job could not be submitted"):
            try:
                # Not repeated: an answer that is lost may be that of a job which runs.
                given = {self.kind.name: request, "parent": self._parent}
                made = self._method("create")(**given, timeout=ANSWER_SECONDS, retry=None)
            except InvalidArgument as error:
                raise UsageError(f"Vertex AI refuses the job: {_one_line(error)}") from error
        return str(made.name)

    def get(self, name: str) -> Any:
        """A job as it is now: its message.

        Raises:
          Unreachable: the service does not answer.
        """
        with _answers(f"{name}: its state cannot be asked for"):
            return self._method("get")(name=name, **_patience())

    def cancel(self, name: str) -> None:
        """Asks Vertex AI to cancel a job, which ends some time later.

        Raises:
          Unreachable: the service does not answer.
        """
        with _answers(f"{name}: cannot be cancelled"):
            self._method("cancel")(name=name, **_patience())

    def _method(self, verb: str) -> Any:
        return getattr(self._client, f"{verb}_{self.kind.name}")

    @functools.cached_property
    def _client(self) -> Any:
        from google.cloud import aiplatform_v1

        address = self._endpoint or f"{self._region}-aiplatform.googleapis.com"
        options: dict[str, Any] = {"client_options": {"api_endpoint": address}, "credentials": self._credentials}
        if "://" in address:  # plain REST, as a server on loopback speaks it
            options["transport"] = "rest"
        with _answers(f"{address}: no client could be made"):
            return aiplatform_v1.JobServiceClient(**options)


def anonymous() -> Any:
    """No credentials, for a server that asks for none."""
    from google.auth.credentials import AnonymousCredentials

    return AnonymousCredentials()


def state_of(job: Any) -> str:
    """The state of a job, such as RUNNING."""
    return str(job.state.name).removeprefix("JOB_STATE_")


def check_accelerators(names: Mapping[str, tuple[str, int]]) -> None:
    """Refuses accelerators that Google's client does not know.

    Raises:
      UsageError: there is no such accelerator.
    """
    if not names:
        return
    from google.cloud.aiplatform_v1 import AcceleratorType

    known = [each.name for each in AcceleratorType if each.value]
    for name, _ in names.values():
        if name not in known:
            raise UsageError(f"--accelerator {name}: no accelerator of Vertex AI; choose from {', '.join(known)}")


def console(project: str, region: str, name: str) -> str:
    """The address of a job's page."""
    job = name.rpartition("/")[2]
    return f"https://console.cloud.google.com/agent-platform/locations/{region}/training/{job}?project={project}"


def _patience() -> dict[str, Any]:
    """Repeats a request that a busy service refused, and a lost connection, for a while."""
    from google.api_core.retry import Retry

    return {"retry": Retry(initial=0.5, maximum=8.0, timeout=ANSWER_SECONDS / 2), "timeout": ANSWER_SECONDS / 4}


@contextlib.contextmanager
def _answers(what: str) -> Iterator[None]:
    """Whatever keeps the service from answering, missing credentials too, as one line."""
    try:
        yield
    except MillraceError:
        raise
    except Exception as error:
        cause = getattr(error, "cause", None) or error  # of a RetryError, which names only the time that has passed
        raise Unreachable(f"{what}: {type(cause).__name__}: {_one_line(cause)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(redacted(str(getattr(error, "message", None) or error)).split())[:500]
