"""A job of Vertex AI, through Google's client, whose patience is limited.

The request for a CustomJob of Vertex AI, or for a study's: worker pools, and how their machines are scheduled.

The pools stand in the order that Vertex AI gives roles by: chief, workers, parameter servers, evaluators; an empty one
keeps the place of a role of which there is none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millrace.submit.package import check_labels, check_variables
from millrace.submit.training import Pools, by_role
from millrace.submit.vertex_study import Study
from schemas.errors import MillraceError, UsageError
from schemas.storage.store import redacted
from trainer.strategies.cluster import CHIEF, ROLES, WORKER

MACHINE_TYPE = "n1-standard-8"
SET_THERE = frozenset({"TF_CONFIG", "CLUSTER_SPEC", "MILLRACE_JOB", "AIP_MODEL_DIR"})
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
_ACCELERATOR = re.compile(r"([A-Za-z0-9_-]+):([1-9][0-9]*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What a CustomJob is given beside its code; `millrace submit vertex --help` describes each.

    Raises:
      UsageError: a value is not what Vertex AI takes.
    """

    name: str
    pools: Pools
    image: str
    machine_type: Sequence[str] = ()
    accelerator: Sequence[str] = ()
    disk_gb: int = 100
    spot: bool = False
    restart_job: bool = False
    timeout_hours: float | None = None
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str | None = None
    network: str | None = None
    tensorboard: str | None = None
    output_dir: str | None = None

    def __post_init__(self) -> None:
        for role, machine in self.machines.items():
            if not _MACHINE.fullmatch(machine):
                raise UsageError(
                    f"--machine_type {machine}: expected the name of a machine type for {role}, such as n1-standard-8"
                )
        for flag, values, known in (
            ("--machine_type", by_role(self.machine_type, "--machine_type", default_for=()), self.pools.sizes),
            ("--accelerator", by_role(self.accelerator, "--accelerator", default_for=()), self.pools.sizes),
        ):
            for role in values.keys() - known.keys():
                raise UsageError(f"{flag} {role}={values[role]}: the job has no {role}; add it, or leave this out")
        self.accelerators  # noqa: B018 - checks them
        if self.disk_gb < 100:
            raise UsageError(f"--disk_gb {self.disk_gb}: must be 100 or more")
        if self.timeout_hours is not None and not 0 < self.timeout_hours < math.inf:
            raise UsageError(f"--timeout_hours {self.timeout_hours:g}: must be more than 0, and finite")
        check_labels(
            self.labels,
            _KEY,
            _VALUE,
            "up to 63 lower-case letters, digits, hyphens and underscores as key and value; a key begins with a letter",
        )
        check_variables(self.variables, SET_THERE)
        if self.tensorboard is not None and self.service_account is None:
            raise UsageError("--tensorboard: needs --service_account, an account that may write to it")
        for flag, value, form, example in (
            (
                "--service_account",
                self.service_account,
                r"[^@\s]+@[^@\s]+",
                "trainer@my-project.iam.gserviceaccount.com",
            ),
            (
                "--network",
                self.network,
                r"projects/[0-9]+/global/networks/[^/]+",
                "projects/12345/global/networks/my-net",
            ),
            (
                "--tensorboard",
                self.tensorboard,
                r"projects/[^/]+/locations/[^/]+/tensorboards/[^/]+",
                "projects/p/locations/us-central1/tensorboards/7",
            ),
        ):
            if value is not None and not re.fullmatch(form, value):
                raise UsageError(f"{flag} {value}: expected the form of {example}")

    @property
    def machines(self) -> dict[str, str]:
        """The machine type of each role."""
        return {**dict.fromkeys(ROLES, MACHINE_TYPE), **by_role(self.machine_type, "--machine_type")}

    @property
    def accelerators(self) -> dict[str, tuple[str, int]]:
        """The accelerators of each role that has some: the name that Vertex AI has for them, and how many."""
        found = {}
        for role, value in by_role(self.accelerator, "--accelerator", default_for=(CHIEF, WORKER)).items():
            matched = _ACCELERATOR.fullmatch(value)
            if matched is None:
                raise UsageError(f"--accelerator {value}: expected TYPE:N, such as NVIDIA_L4:1")
            found[role] = (matched[1].upper().replace("-", "_"), int(matched[2]))
        return found


def custom_job(settings: JobSettings, command: Sequence[str]) -> dict[str, Any]:
    """The job as fields of `google.cloud.aiplatform_v1.CustomJob`.

    Args:
      settings: what it is given.
      command: what runs in each container.
    """
    return _given({**_named(settings), "job_spec": _job_spec(settings, command)})


def tuning_job(settings: JobSettings, command: Sequence[str], study: Study) -> dict[str, Any]:
    """A job for each trial of a study, as fields of `google.cloud.aiplatform_v1.HyperparameterTuningJob`.

    Args:
      settings: what each trial's job is given.
      command: what runs in its container, to which Vertex AI appends the values of the trial.
      study: the study.
    """
    return _given({**_named(settings), **study.fields(), "trial_job_spec": _job_spec(settings, command)})


def _named(settings: JobSettings) -> dict[str, Any]:
    return {"display_name": settings.name, "labels": dict(settings.labels)}


def _job_spec(settings: JobSettings, command: Sequence[str]) -> dict[str, Any]:
    """It as fields of `CustomJobSpec`."""
    sizes = settings.pools.sizes
    last = max(ROLES.index(role) for role in sizes)
    env = [{"name": name, "value": value} for name, value in _variables(settings).items()]
    container = {"image_uri": settings.image, "command": list(command), "env": env}
    pools = [
        {
            "replica_count": sizes[role],
            "machine_spec": _machine(settings, role),
            "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": settings.disk_gb},
            "container_spec": container,
        }
        if role in sizes
        else {}
        for role in ROLES[: last + 1]
    ]
    spec = {
        "worker_pool_specs": pools,
        "scheduling": _scheduling(settings),
        "base_output_directory": None if settings.output_dir is None else {"output_uri_prefix": settings.output_dir},
        "service_account": settings.service_account,
        "network": settings.network,
        "tensorboard": settings.tensorboard,
    }
    return _given(spec)


def _variables(settings: JobSettings) -> dict[str, str]:
    return {"MILLRACE_JOB": settings.name, "PYTHONUNBUFFERED": "1", **settings.variables}


def _machine(settings: JobSettings, role: str) -> dict[str, Any]:
    machine: dict[str, Any] = {"machine_type": settings.machines[role]}
    if role in settings.accelerators:
        machine["accelerator_type"], machine["accelerator_count"] = settings.accelerators[role]
    return machine


def _scheduling(settings: JobSettings) -> dict[str, Any]:
    scheduling: dict[str, Any] = {}
    if settings.spot:
        scheduling["strategy"] = "SPOT"
    if settings.restart_job:
        scheduling["restart_job_on_worker_restart"] = True
    if settings.timeout_hours is not None:
        scheduling["timeout"] = {"seconds": round(settings.timeout_hours * 3600)}
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
