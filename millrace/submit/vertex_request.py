"""The request for a CustomJob of Vertex AI, or for a study's: worker pools, and how their machines are scheduled.

The pools stand in the order that Vertex AI gives roles by: chief, workers, parameter servers, evaluators; an empty one
keeps the place of a role of which there is none.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.submit.names import check_labels, check_variables
from millrace.submit.pools import Pools, by_role
from millrace.submit.vertex_study import Study
from schemas.errors import UsageError
from trainer.replica.cluster import CHIEF, ROLES, WORKER

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
