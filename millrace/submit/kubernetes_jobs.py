"""Jobs of Kubernetes: an indexed Job for each role of a training, and a headless Service that names the pods.

The pods of an indexed Job are called JOB-INDEX, and with the Service's name as their subdomain that is their address,
before they run and after they were started again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from millrace.submit.kubernetes_pods import PORT, PodSettings, labels, metadata, pod_spec

_USAGE_ERROR = 2  # the exit code of what would fail each time


def jobs(settings: PodSettings, command: Sequence[str]) -> list[dict[str, Any]]:
    """The Service, and a Job for each role.

    Args:
      settings: what the pods are given.
      command: what runs in each container.
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(settings, settings.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # a pod finds the others before they listen
            "selector": {"millrace-job": settings.name},
            "ports": [{"name": "tensorflow", "port": PORT}],
        },
    }
    return [service, *(_job(settings, role, count, command) for role, count in settings.pools.sizes.items())]


def _job(settings: PodSettings, role: str, count: int, command: Sequence[str]) -> dict[str, Any]:
    fails = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [_USAGE_ERROR]}}
    pod = {"subdomain": settings.name, "restartPolicy": "Never"}
    pod |= pod_spec(settings, role, command, env=_tf_config(settings, role))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(settings, f"{settings.name}-{role}", role),
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": settings.restarts * count,
            "podFailurePolicy": {"rules": [fails]},
            "template": {"metadata": {"labels": labels(settings, role)}, "spec": pod},
        },
    }


def _tf_config(settings: PodSettings, role: str) -> list[dict[str, Any]]:
    """TF_CONFIG is one text for all pods of a role: Kubernetes puts each one's index in its place."""
    cluster = {
        each: [f"{settings.name}-{each}-{i}.{settings.name}:{PORT}" for i in range(count)]
        for each, count in settings.pools.sizes.items()
    }
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": "$(JOB_COMPLETION_INDEX)"}})
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "TF_CONFIG", "value": config},
    ]
