"""`millrace submit kubernetes`: writes the manifests of a training, and applies them with kubectl if asked to.

There is an indexed Job for each role of the training, and a headless Service. Kubernetes names the pods of an indexed
Job JOB-INDEX, and with the Service as their subdomain that name is their address, before they run and after a restart.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.submit.command import SET_BY_SUBMIT, KubernetesOptions
from millrace.submit.training import Training, check_strategy, check_variables, read_training
from schemas import command, storage
from schemas.errors import MillraceError, UsageError
from trainer.strategies.cluster import CHIEF, WORKER

PORT = 2222
_QUANTITY = r"[0-9]+(\.[0-9]+)?(m|[EPTGMk]i?)?"
_FORMS = {
    "cpu": (_QUANTITY, "a quantity, such as 4 or 500m"),
    "memory": (_QUANTITY, "a quantity, such as 16Gi"),
    "volume": (r"[a-z0-9.-]+=/[^:]*[^:/]", "CLAIM=DIR, such as data=/mnt/data"),
}


def manifests(options: KubernetesOptions, command: Sequence[str]) -> list[dict[str, Any]]:
    """The documents to apply: a Service, and a Job for each role.

    Args:
      options: what the pods are given, and what starts them.
      command: what runs in each container.
    """
    import yaml

    parts = yaml.safe_load(storage.read_bytes(str(Path(__file__).with_name("kubernetes.yaml"))))
    variables = {"MILLRACE_JOB": options.name, "PYTHONUNBUFFERED": "1", **options.pairs("env")}
    labels = {**options.pairs("labels"), "millrace-job": options.name}
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
    for role, count in options.pools.sizes.items():
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
    """A part of the template, each `$name` in it replaced by the value of that name; without keys that have none."""
    if isinstance(part, dict):
        filled = ((key, _filled(value, values)) for key, value in part.items())
        return {key: value for key, value in filled if value is not None}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    # Copied, since YAML refers to what stands in a document twice.
    return copy.deepcopy(values.get(part[1:])) if isinstance(part, str) and part.startswith("$") else part


def _literal(text: str) -> str:
    """Text in which Kubernetes puts no variable's value."""
    return text.replace("$(", "$$(")


def _tf_config(options: KubernetesOptions, role: str) -> list[dict[str, Any]]:
    """TF_CONFIG is one text for all pods of a role: Kubernetes puts each one's index in its place."""
    cluster = {
        member: [f"{options.name}-{member}-{i}.{options.name}:{PORT}" for i in range(count)]
        for member, count in options.pools.sizes.items()
    }
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": "$(JOB_COMPLETION_INDEX)"}})
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "TF_CONFIG", "value": config},
    ]


_KUBECTL_SECONDS = 120


def submit(options: KubernetesOptions, arguments: Sequence[str] | None, prog: str) -> command.Report:
    """Writes the manifests; with --apply, applies them.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong.
      MillraceError: a file cannot be written, or kubectl failed.
    """
    import yaml

    if not options.image:
        raise UsageError("--image: missing; the containers need an image with this package: docker/worker builds one")
    training = read_training(arguments, prog)
    for flag, (form, expected) in _FORMS.items():
        value = getattr(options, flag)
        if value is not None and not re.fullmatch(form, value):
            raise UsageError(f"--{flag} {value}: expected {expected}")
    check_variables(options.pairs("env"), SET_BY_SUBMIT)
    check_strategy(training, options.pools)
    _check_paths(training, None if options.volume is None else options.volume.partition("=")[2])
    if options.apply and shutil.which("kubectl") is None:
        raise UsageError("--apply: there is no kubectl on PATH; leave it out, and apply the file elsewhere")
    path = options.output or f"{options.name}.yaml"
    storage.check_output(path, overwrite=options.overwrite)
    if options.apply and not storage.is_local(path):
        raise UsageError(f"--output {path}: kubectl applies local files; give one, or leave --apply out")
    documents = manifests(options, training.command)
    storage.write_bytes(path, yaml.safe_dump_all(documents, sort_keys=False, width=120).encode())
    if options.apply:
        _apply(path, quiet=options.quiet)
    namespace = f"-n {options.namespace}"
    lines = [f"{'applied' if options.apply else 'written':<10} {path}"]
    if not options.apply:
        lines.append(f"next       kubectl apply -f {path}")
    lines.append(f"           kubectl logs -f job/{options.name}-chief {namespace}")
    lines.append(f"           kubectl delete job,service -l millrace-job={options.name} {namespace}")
    data = {"job": options.name, "namespace": options.namespace, "manifests": path, "applied": options.apply}
    return command.Report("\n".join(lines), data)


def _check_paths(training: Training, mount: str | None) -> None:
    if mount is None:
        training.check_in_buckets("the containers have disks of their own, and there is no --volume")
        return
    for flag, path in training.paths.items():
        if storage.is_local(path) and not path.startswith(f"{mount}/"):
            raise UsageError(f"{flag} {path}: must be in a bucket, or below {mount} of --volume")


def _apply(path: str, *, quiet: bool) -> None:
    try:
        kubectl = ["kubectl", "apply", "-f", path]
        done = subprocess.run(kubectl, capture_output=True, text=True, timeout=_KUBECTL_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise MillraceError(f"kubectl did not answer for {_KUBECTL_SECONDS} s; {path} can be applied again") from error
    if done.returncode:
        reason = " ".join(done.stderr.split())[:500]
        raise MillraceError(f"kubectl failed with exit code {done.returncode}: {reason}; {path} can be applied again")
    if not quiet:
        print(done.stdout, end="", file=sys.stderr, flush=True)
