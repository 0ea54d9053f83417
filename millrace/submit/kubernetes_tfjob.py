"""A TFJob of Kubeflow's training operator (v1), which starts the pods of all roles and sets TF_CONFIG for them.

What the operator does is read from its release 1.9: it gives each pod a Service, and sets TF_CONFIG where there are
several pods, with the roles in lower case and the evaluator among them, as `trainer.replica.cluster` reads it. The job
has succeeded when the chief has, and then what still runs is removed. That is why the chief waits for the evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.submit.kubernetes_pods import PodSettings, labels, metadata, pod_spec
from trainer.replica.cluster import CHIEF, EVALUATOR, PS, WORKER

_ROLES = {CHIEF: "Chief", WORKER: "Worker", PS: "PS", EVALUATOR: "Evaluator"}


def tfjob(settings: PodSettings, command: Sequence[str]) -> list[dict[str, Any]]:
    """The TFJob, as the only document.

    Args:
      settings: what the pods are given.
      command: what runs in each container.
    """
    replicas = {_ROLES[role]: _replicas(settings, role, count, command) for role, count in settings.pools.sizes.items()}
    spec = {
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": settings.restarts},
        "tfReplicaSpecs": replicas,
    }
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata(settings, settings.name),
        "spec": spec,
    }
    return [job]


def _replicas(settings: PodSettings, role: str, count: int, command: Sequence[str]) -> dict[str, Any]:
    # The operator looks for a container and a port of these names.
    pod = pod_spec(settings, role, command, container="tensorflow", port="tfjob-port")
    return {
        "replicas": count,
        "restartPolicy": "ExitCode",  # starts again what a signal ended (128 and above), not what failed by itself
        "template": {"metadata": {"labels": labels(settings, role)}, "spec": pod},
    }
