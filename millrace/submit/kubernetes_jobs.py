"""The manifests of a training on Kubernetes: an indexed Job for each role, and a headless Service that names the pods.

The pods of an indexed Job are called JOB-INDEX, and with the Service's name as their subdomain that is their address,
before they run and after they were started again.
"""

from __future__ import annotations

import dataclasses
import json
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
_USAGE_ERROR = 2  # the exit code of what would fail each time


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


def manifests(settings: PodSettings, command: Sequence[str]) -> list[dict[str, Any]]:
    """The Service, and a Job for each role.

    Args:
      settings: what the pods are given.
      command: what runs in each container.
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(settings, settings.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # a pod finds the others before they listen
            "selector": {"millrace-job": settings.name},
            "ports": [{"name": "tensorflow", "port": PORT}],
        },
    }
    return [service, *(_job(settings, role, count, command) for role, count in settings.pools.sizes.items())]


def _job(settings: PodSettings, role: str, count: int, command: Sequence[str]) -> dict[str, Any]:
    metadata = _metadata(settings, f"{settings.name}-{role}", role)
    fails = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [_USAGE_ERROR]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": settings.restarts * count,
            "podFailurePolicy": {"rules": [fails]},
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": _pod(settings, role, command)},
        },
    }


def _pod(settings: PodSettings, role: str, command: Sequence[str]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "trainer",
        "image": settings.image,
        "command": [_literal(part) for part in command],
        "env": _variables(settings, role),
        "ports": [{"name": "tensorflow", "containerPort": PORT}],
        "resources": _resources(settings, role),
    }
    pod: dict[str, Any] = {"subdomain": settings.name, "restartPolicy": "Never", "containers": [container]}
    if settings.service_account is not None:
        pod["serviceAccountName"] = settings.service_account
    if settings.claim is not None:
        container["volumeMounts"] = [{"name": "data", "mountPath": settings.mount}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}}]
    return pod


def _variables(settings: PodSettings, role: str) -> list[dict[str, Any]]:
    """TF_CONFIG is one text for all pods of a role: Kubernetes puts each one's index in its place."""
    cluster = {
        each: [f"{settings.name}-{each}-{i}.{settings.name}:{PORT}" for i in range(count)]
        for each, count in settings.pools.sizes.items()
    }
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": "$(JOB_COMPLETION_INDEX)"}})
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    fixed = {"MILLRACE_JOB": settings.name, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2", **settings.variables}
    return [
        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "TF_CONFIG", "value": config},
        *({"name": name, "value": _literal(value)} for name, value in fixed.items()),
    ]


def _literal(text: str) -> str:
    """Text in which Kubernetes puts no variable's value."""
    return text.replace("$(", "$$(")


def _resources(settings: PodSettings, role: str) -> dict[str, Any]:
    limits = {"cpu": settings.cpu, "memory": settings.memory}
    if settings.gpus and role in (CHIEF, WORKER):
        limits["nvidia.com/gpu"] = str(settings.gpus)
    return {"requests": dict(limits), "limits": limits}


def _metadata(settings: PodSettings, name: str, role: str | None = None) -> dict[str, Any]:
    own = {"millrace-job": settings.name, **({} if role is None else {"millrace-role": role})}
    return {"name": name, "namespace": settings.namespace, "labels": {**settings.labels, **own}}
