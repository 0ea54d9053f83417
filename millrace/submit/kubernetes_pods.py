"""What the pods of a training on Kubernetes are given, whatever starts them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.submit.names import check_labels, check_variables
from millrace.submit.pools import Pools
from schemas.errors import UsageError
from trainer.replica.cluster import CHIEF, WORKER

PORT = 2222
SET_THERE = frozenset({"TF_CONFIG", "CLUSTER_SPEC", "MILLRACE_JOB", "JOB_COMPLETION_INDEX"})
_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NO_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = r"[0-9]+(\.[0-9]+)?(m|[EPTGMk]i?)?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodSettings:
    """What the pods are given beside their code; `millrace submit kubernetes --help` describes each.

    Raises:
      UsageError: a value is not what Kubernetes takes.
    """

    name: str
    pools: Pools
    image: str
    namespace: str = "default"
    cpu: str = "4"
    memory: str = "16Gi"
    gpus: int = 0
    restarts: int = 3
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str | None = None
    volume: str | None = None

    def __post_init__(self) -> None:
        for flag, value, form, expected in (
            (
                "--namespace",
                self.namespace,
                r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
                "lower-case letters, digits and hyphens",
            ),
            ("--cpu", self.cpu, _QUANTITY, "a quantity, such as 4 or 500m"),
            ("--memory", self.memory, _QUANTITY, "a quantity, such as 16Gi"),
            ("--service_account", self.service_account, _NAME, "lower-case letters, digits, hyphens and dots"),
            ("--volume", self.volume, rf"{_NAME}=/[^:]*[^:/]", "CLAIM=DIR, such as data=/mnt/data"),
        ):
            if value is not None and not re.fullmatch(form, value):
                raise UsageError(f"{flag} {value}: expected {expected}")
        for flag, count in (("--gpus", self.gpus), ("--restarts", self.restarts)):
            if count < 0:
                raise UsageError(f"{flag} {count}: must be 0 or more")
        check_variables(self.variables, SET_THERE)
        check_labels(self.labels, _LABEL, _NO_LABEL, "up to 63 letters, digits, dots, hyphens and underscores")

    @property
    def claim(self) -> str | None:
        """The PersistentVolumeClaim of --volume."""
        return None if self.volume is None else self.volume.partition("=")[0]

    @property
    def mount(self) -> str | None:
        """The folder that it is mounted at."""
        return None if self.volume is None else self.volume.partition("=")[2]


def pod_spec(
    settings: PodSettings,
    role: str,
    command: Sequence[str],
    *,
    container: str = "trainer",
    port: str = "tensorflow",
    env: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The specification of a role's pods.

    Args:
      settings: what they are given.
      role: their role.
      command: what runs in the container.
      container: the container's name.
      port: the name of the port that the processes talk by.
      env: variables that stand before the settings' own.
    """
    fixed = {"MILLRACE_JOB": settings.name, "PYTHONUNBUFFERED": "1", **settings.variables}
    trainer: dict[str, Any] = {
        "name": container,
        "image": settings.image,
        "command": [_literal(part) for part in command],
        "env": [*env, *({"name": name, "value": _literal(value)} for name, value in fixed.items())],
        "ports": [{"name": port, "containerPort": PORT}],
        "resources": _resources(settings, role),
    }
    pod: dict[str, Any] = {"containers": [trainer]}
    if settings.service_account is not None:
        pod["serviceAccountName"] = settings.service_account
    if settings.claim is not None:
        trainer["volumeMounts"] = [{"name": "data", "mountPath": settings.mount}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}}]
    return pod


def metadata(settings: PodSettings, name: str, role: str | None = None) -> dict[str, Any]:
    """Name, namespace and labels of an object, of which `role` is one if it has one."""
    return {"name": name, "namespace": settings.namespace, "labels": labels(settings, role)}


def labels(settings: PodSettings, role: str | None = None) -> dict[str, str]:
    """The labels of an object, or of pods: the user's, the job's name, and the role."""
    own = {"millrace-job": settings.name, **({} if role is None else {"millrace-role": role})}
    return {**settings.labels, **own}


def _literal(text: str) -> str:
    """Text in which Kubernetes puts no variable's value."""
    return text.replace("$(", "$$(")


def _resources(settings: PodSettings, role: str) -> dict[str, Any]:
    limits = {"cpu": settings.cpu, "memory": settings.memory}
    if settings.gpus and role in (CHIEF, WORKER):
        limits["nvidia.com/gpu"] = str(settings.gpus)
    return {"requests": dict(limits), "limits": limits}
