"""`millrace submit kubernetes`: writes the manifests of a training, for kubectl to apply.

The manifests are an indexed Job for each role of the training, and a headless Service. Kubernetes names the pods of an
indexed Job JOB-INDEX. With the Service as the pods' subdomain, this name is also a pod's address. It is known before
the pod runs, and stays the same after a restart.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.submit.command import KubernetesOptions
from millrace.submit.training import SubmittedTraining, pairs, read_training
from schemas import command, storage
from schemas.errors import UsageError
from trainer.strategies.cluster import CHIEF, WORKER

PORT = 2222
_VOLUME = re.compile(r"[a-z0-9.-]+=/[^:]*[^:/]")


def manifests(options: KubernetesOptions, command: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the documents to apply: a Service, and a Job for each role.

    Args:
      options: the options of the manifests.
      command: the command that each container runs.
    """
    import yaml

    parts = yaml.safe_load(storage.read_bytes(str(Path(__file__).with_name("kubernetes.yaml"))))
    variables = {"PYTHONUNBUFFERED": "1", **options.variables}
    labels = {**pairs(options.labels, "--labels"), "millrace-job": options.name}
    values: dict[str, Any] = {
        "name": options.name,
        "namespace": options.namespace,
        "labels": labels,
        "image": options.image,
        "command": [_literal(part) for part in command],
        "service_account": options.service_account,
    }
    if options.volume is not None:
        claim, _, mount = options.volume.partition("=")
        values["mounts"] = [{"name": "data", "mountPath": mount}]
        values["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    documents = [_filled(parts["service"], values)]
    for role, count in options.sizes.items():
        limits = {"cpu": options.cpu, "memory": options.memory}
        if options.gpus and role in (CHIEF, WORKER):
            limits["nvidia.com/gpu"] = str(options.gpus)
        literal = [{"name": name, "value": _literal(value)} for name, value in variables.items()]
        of_role = {
            "count": count,
            "restarts": options.restarts * count,
            "role_name": f"{options.name}-{role}",
            "role_labels": {**labels, "millrace-role": role},
            "limits": limits,
            "env": [*_tf_config(options, role), *literal],
        }
        documents.append(_filled(parts["job"], {**values, **of_role}))
    return documents


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    """Fills in a part of the template: replaces each `$name` by its value, and removes keys with the value None."""
    if isinstance(part, dict):
        filled = ((key, _filled(value, values)) for key, value in part.items())
        return {key: value for key, value in filled if value is not None}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    # Copied, because YAML would write a reference for an object that occurs twice.
    return copy.deepcopy(values.get(part[1:])) if isinstance(part, str) and part.startswith("$") else part


def _literal(text: str) -> str:
    """Escapes `$(`, so that Kubernetes does not replace `$(NAME)` by the value of a variable."""
    return text.replace("$(", "$$(")


def _tf_config(options: KubernetesOptions, role: str) -> list[dict[str, Any]]:
    """Returns the variable TF_CONFIG for all pods of a role.

    All pods have the same text, in which Kubernetes replaces $(JOB_COMPLETION_INDEX) by the index of each pod.
    """
    cluster = {
        member: [f"{options.name}-{member}-{i}.{options.name}:{PORT}" for i in range(count)]
        for member, count in options.sizes.items()
    }
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": "$(JOB_COMPLETION_INDEX)"}})
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "TF_CONFIG", "value": config},
    ]


def submit(options: KubernetesOptions, arguments: Sequence[str] | None, prog: str) -> command.Report:
    """Writes the manifests to a file.

    Args:
      options: the options of the command.
      arguments: the arguments after `--`; None: there was no `--`.
      prog: the command as it was typed, for messages.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong.
      MillraceError: the file cannot be written.
    """
    import yaml

    if not options.image:
        raise UsageError("--image: missing; the containers need an image with this package: docker/worker builds one")
    training = read_training(arguments, prog, options.sizes)
    if options.volume is not None and not _VOLUME.fullmatch(options.volume):
        raise UsageError(f"--volume {options.volume}: expected CLAIM=DIR, such as data=/mnt/data")
    _check_paths(training, None if options.volume is None else options.volume.partition("=")[2])
    path = options.output or f"{options.name}.yaml"
    storage.check_output(path, overwrite=options.overwrite)
    documents = manifests(options, training.command)
    storage.write_bytes(path, yaml.safe_dump_all(documents, sort_keys=False, width=120).encode())
    namespace = f"-n {options.namespace}"
    lines = [
        f"written    {path}",
        f"next       kubectl apply -f {path}",
        f"           kubectl logs -f job/{options.name}-chief {namespace}",
        f"           kubectl delete job,service -l millrace-job={options.name} {namespace}",
    ]
    data = {"job": options.name, "namespace": options.namespace, "manifests": path}
    return command.Report("\n".join(lines), data)


def _check_paths(training: SubmittedTraining, mount: str | None) -> None:
    """Refuses paths of the training that the containers could not reach."""
    if mount is None:
        training.check_in_buckets("the containers have disks of their own, and there is no --volume")
        return
    for flag, path in training.paths.items():
        if storage.is_local(path) and not path.startswith(f"{mount}/"):
            raise UsageError(f"{flag} {path}: must be in a bucket, or below {mount} of --volume")
