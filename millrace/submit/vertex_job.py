"""Jobs of Vertex AI, through Google's client, whose patience is limited: the request for a CustomJob or a study.

Its worker pools stand in the order that Vertex AI gives roles by: chief, workers, parameter servers, evaluators; an
empty one keeps the place of a role of which there is none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millrace.submit.command import VertexOptions
from millrace.submit.training import by_role, check_forms, check_labels, check_variables
from millrace.submit.vertex_study import Study
from schemas.errors import MillraceError, UsageError
from schemas.outage import asked_again
from schemas.storage.store import redacted
from trainer.strategies.cluster import CHIEF, ROLES, WORKER

MACHINE_TYPE = "n1-standard-8"
SET_THERE = frozenset({"TF_CONFIG", "CLUSTER_SPEC", "MILLRACE_JOB", "AIP_MODEL_DIR"})
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
_ACCELERATOR = re.compile(r"([A-Za-z0-9_-]+):([1-9][0-9]*)")
_FORMS = {  # of the names of other things in Google Cloud, each with an example
    "service_account": (r"[^@\s]+@[^@\s]+", "the form of trainer@my-project.iam.gserviceaccount.com"),
    "network": (r"projects/[0-9]+/global/networks/[^/]+", "the form of projects/12345/global/networks/my-net"),
    "tensorboard": (
        r"projects/[^/]+/locations/[^/]+/tensorboards/[^/]+",
        "the form of projects/p/locations/us-central1/tensorboards/7",
    ),
}


def check_job(options: VertexOptions) -> None:
    """Checks what a job is given beside its code.

    Raises:
      UsageError: a value is not what Vertex AI takes.
    """
    options.name, options.pools  # noqa: B018 - checks them
    variables, labels = options.pairs("env"), options.pairs("labels")
    for role, machine in _machines(options).items():
        if not _MACHINE.fullmatch(machine):
            raise UsageError(
                f"--machine_type {machine}: expected the name of a machine type for {role}, such as n1-standard-8"
            )
    for flag, given in (("--machine_type", options.machine_type), ("--accelerator", options.accelerator)):
        values = by_role(given, flag, default_for=())
        for role in values.keys() - options.pools.sizes.keys():
            raise UsageError(f"{flag} {role}={values[role]}: the job has no {role}; add it, or leave this out")
    _accelerators(options)
    expected = (
        "up to 63 lower-case letters, digits, hyphens and underscores as key and value; a key begins with a letter"
    )
    check_labels(labels, _KEY, _VALUE, expected)
    check_variables(variables, SET_THERE)
    if options.tensorboard is not None and options.service_account is None:
        raise UsageError("--tensorboard: needs --service_account, an account that may write to it")
    check_forms(options, _FORMS)


def _machines(options: VertexOptions) -> dict[str, str]:
    """The machine type of each role."""
    return {**dict.fromkeys(ROLES, MACHINE_TYPE), **by_role(options.machine_type, "--machine_type")}


def _accelerators(options: VertexOptions) -> dict[str, tuple[str, int]]:
    """The accelerators of each role that has some: the name that Vertex AI has for them, and how many."""
    found = {}
    for role, value in by_role(options.accelerator, "--accelerator", default_for=(CHIEF, WORKER)).items():
        matched = _ACCELERATOR.fullmatch(value)
        if matched is None:
            raise UsageError(f"--accelerator {value}: expected TYPE:N, such as NVIDIA_L4:1")
        found[role] = (matched[1].upper().replace("-", "_"), int(matched[2]))
    return found


def custom_job(options: VertexOptions, command: Sequence[str]) -> dict[str, Any]:
    """The job as fields of `google.cloud.aiplatform_v1.CustomJob`.

    Args:
      options: what it is given.
      command: what runs in each container.
    """
    return _given({**_named(options), "job_spec": _job_spec(options, command)})


def tuning_job(options: VertexOptions, command: Sequence[str], study: Study) -> dict[str, Any]:
    """A job for each trial of a study, as fields of `google.cloud.aiplatform_v1.HyperparameterTuningJob`.

    Args:
      options: what each trial's job is given.
      command: what runs in its container, to which Vertex AI appends the values of the trial.
      study: the study.
    """
    return _given({**_named(options), **study.fields(), "trial_job_spec": _job_spec(options, command)})


def _named(options: VertexOptions) -> dict[str, Any]:
    return {"display_name": options.name, "labels": options.pairs("labels")}


def _job_spec(options: VertexOptions, command: Sequence[str]) -> dict[str, Any]:
    """It as fields of `CustomJobSpec`."""
    sizes = options.pools.sizes
    last = max(ROLES.index(role) for role in sizes)
    variables = {"MILLRACE_JOB": options.name, "PYTHONUNBUFFERED": "1", **options.pairs("env")}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    container = {"image_uri": options.image, "command": list(command), "env": env}
    pools = [
        {
            "replica_count": sizes[role],
            "machine_spec": _machine(options, role),
            "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": options.disk_gb},
            "container_spec": container,
        }
        if role in sizes
        else {}
        for role in ROLES[: last + 1]
    ]
    spec = {
        "worker_pool_specs": pools,
        "scheduling": _scheduling(options),
        "base_output_directory": None if options.output_dir is None else {"output_uri_prefix": options.output_dir},
        "service_account": options.service_account,
        "network": options.network,
        "tensorboard": options.tensorboard,
    }
    return _given(spec)


def _machine(options: VertexOptions, role: str) -> dict[str, Any]:
    machine: dict[str, Any] = {"machine_type": _machines(options)[role]}
    accelerators = _accelerators(options)
    if role in accelerators:
        machine["accelerator_type"], machine["accelerator_count"] = accelerators[role]
    return machine


def _scheduling(options: VertexOptions) -> dict[str, Any]:
    scheduling: dict[str, Any] = {}
    if options.spot:
        scheduling["strategy"] = "SPOT"
    if options.restart_job:
        scheduling["restart_job_on_worker_restart"] = True
    if options.timeout_hours is not None:
        scheduling["timeout"] = {"seconds": round(options.timeout_hours * 3600)}
    return scheduling


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that say nothing."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


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
            return self._method("get")(name=name, **asked_again(ANSWER_SECONDS))

    def cancel(self, name: str) -> None:
        """Asks Vertex AI to cancel a job, which ends some time later.

        Raises:
          Unreachable: the service does not answer.
        """
        with _answers(f"{name}: cannot be cancelled"):
            self._method("cancel")(name=name, **asked_again(ANSWER_SECONDS))

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


def check_accelerators(options: VertexOptions) -> None:
    """Refuses accelerators that Google's client does not know.

    Raises:
      UsageError: there is no such accelerator.
    """
    asked = _accelerators(options)
    if not asked:
        return
    from google.cloud.aiplatform_v1 import AcceleratorType

    known = [each.name for each in AcceleratorType if each.value]
    for name, _ in asked.values():
        if name not in known:
            raise UsageError(f"--accelerator {name}: no accelerator of Vertex AI; choose from {', '.join(known)}")


def console(project: str, region: str, name: str) -> str:
    """The address of a job's page."""
    job = name.rpartition("/")[2]
    return f"https://console.cloud.google.com/agent-platform/locations/{region}/training/{job}?project={project}"


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
