"""`millrace submit kubernetes`: writes the manifests of a training, and applies them with kubectl where asked.

What the pods of a training on Kubernetes are given, whatever starts them.

Jobs of Kubernetes: an indexed Job for each role of a training, and a headless Service that names the pods.

The pods of an indexed Job are called JOB-INDEX, and with the Service's name as their subdomain that is their address,
before they run and after they were started again.

A TFJob of Kubeflow's training operator (v1), which starts the pods of all roles and sets TF_CONFIG for them.

What the operator does is read from its release 1.9: it gives each pod a Service, and sets TF_CONFIG where there are
several pods, with the roles in lower case and the evaluator among them, as `trainer.strategies.cluster` reads it. The
job has succeeded when the chief has, and then what still runs is removed. That is why the chief waits for the
evaluator.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.submit.flags import TFJOB, KubernetesOptions, settings_of
from millrace.submit.package import FOLDER, Packages, check_labels, check_variables, own_packages
from millrace.submit.training import Pools, Training, check_bucket, check_own_model, check_strategy, read_training
from schemas import command, storage
from schemas.errors import MillraceError, UsageError
from trainer.strategies.cluster import CHIEF, EVALUATOR, PS, WORKER

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


_ROLES = {CHIEF: "Chief", WORKER: "Worker", PS: "PS", EVALUATOR: "Evaluator"}  # as a TFJob names them


def manifests(settings: PodSettings, command: Sequence[str], *, kind: str) -> list[dict[str, Any]]:
    """The documents to apply: a Service and a Job for each role, or a TFJob.

    Args:
      settings: what the pods are given.
      command: what runs in each container.
      kind: what starts the pods.
    """
    import yaml

    parts = yaml.safe_load(storage.read_bytes(str(Path(__file__).with_name("kubernetes.yaml"))))
    own = {"millrace-job": settings.name}
    values: dict[str, Any] = {
        "name": settings.name,
        "namespace": settings.namespace,
        "labels": {**settings.labels, **own},
        "image": settings.image,
        "command": [_literal(part) for part in command],
        "service_account": settings.service_account,
        # The operator looks for a container and a port of these names.
        "container": "tensorflow" if kind == TFJOB else "trainer",
        "port": "tfjob-port" if kind == TFJOB else "tensorflow",
    }
    if settings.volume is not None:
        claim, _, mount = settings.volume.partition("=")
        values["mounts"] = [{"name": "data", "mountPath": mount}]
        values["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]

    def of_role(part: str, role: str, count: int) -> dict[str, Any]:
        """A document of a role, with the specification of its pods."""
        fixed = {"MILLRACE_JOB": settings.name, "PYTHONUNBUFFERED": "1", **settings.variables}
        env = [{"name": name, "value": _literal(value)} for name, value in fixed.items()]
        limits = {"cpu": settings.cpu, "memory": settings.memory}
        if settings.gpus and role in (CHIEF, WORKER):
            limits["nvidia.com/gpu"] = str(settings.gpus)
        of_pod = {"limits": limits, "env": env if kind == TFJOB else [*_tf_config(settings, role), *env]}
        counted = {"count": count, "restarts": settings.restarts * count, "role_name": f"{settings.name}-{role}"}
        labels = {**values["labels"], "millrace-role": role}
        made: dict[str, Any] = _filled(parts[part], {**values, **counted, "role_labels": labels})
        of_pods = (made if kind == TFJOB else made["spec"])["template"]
        of_pods["spec"] = {**of_pods.get("spec", {}), **_filled(parts["pod"], {**values, **of_pod})}
        return made

    sizes = settings.pools.sizes.items()
    if kind == TFJOB:
        replicas = {_ROLES[role]: of_role("replicas", role, count) for role, count in sizes}
        return [_filled(parts["tfjob"], {**values, "restarts": settings.restarts, "replicas": replicas})]
    return [_filled(parts["service"], values), *(of_role("job", role, count) for role, count in sizes)]


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    """A part of the template, each `$name` in it replaced by the value of that name; without keys that have none."""
    if isinstance(part, dict):
        found = ((key, _filled(each, values)) for key, each in part.items())
        return {key: value for key, value in found if value is not None}
    if isinstance(part, list):
        return [_filled(each, values) for each in part]
    # Copied, since YAML refers to what stands in a document twice.
    return copy.deepcopy(values.get(part[1:])) if isinstance(part, str) and part.startswith("$") else part


def _literal(text: str) -> str:
    """Text in which Kubernetes puts no variable's value."""
    return text.replace("$(", "$$(")


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


_KUBECTL_SECONDS = 120


def submit(options: KubernetesOptions, given: Sequence[str] | None, prog: str) -> command.Report:
    """Writes the manifests; with --apply, applies them.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong; nothing was staged.
      MillraceError: a file cannot be written, or kubectl failed.
    """
    import yaml

    if not options.image:
        raise UsageError(
            "--image: missing; the containers need an image with the pinned dependencies: docker/worker builds one"
        )
    check_bucket("--staging_bucket", options.staging_bucket)
    training = read_training(given, prog)
    own = own_packages(options.package)
    if own and options.staging_bucket is None:
        raise UsageError("--package: needs --staging_bucket, from which the containers install it")
    check_own_model(training, own)
    settings = settings_of(PodSettings, options)
    check_strategy(training, settings.pools)
    _check_paths(training, None if settings.volume is None else settings.volume.partition("=")[2])
    if options.apply and shutil.which("kubectl") is None:
        raise UsageError("--apply: there is no kubectl on PATH; leave it out, and apply the file elsewhere")
    path = options.output or f"{settings.name}.yaml"
    storage.check_output(path, overwrite=options.overwrite)
    if options.apply and not storage.is_local(path):
        raise UsageError(f"--output {path}: kubectl applies local files; give one, or leave --apply out")
    run = ["python", "-m", "trainer.replica", *training.args]
    packages = None
    if options.staging_bucket is not None:
        packages = Packages(storage.join(options.staging_bucket, FOLDER, settings.name), own)
        run = packages.command(training.args)
    documents = manifests(settings, run, kind=options.kind)

    storage.write_bytes(path, yaml.safe_dump_all(documents, sort_keys=False, width=120).encode())
    if packages is not None:
        packages.stage()
    if options.apply:
        _apply(path, quiet=options.quiet)
    data = {"job": settings.name, "kind": options.kind, "namespace": settings.namespace}
    told = _told(settings, path, tfjob=options.kind == TFJOB, applied=options.apply)
    return command.Report("\n".join(told), {**data, "manifests": path, "applied": options.apply})


def _check_paths(training: Training, mount: str | None) -> None:
    if mount is None:
        training.check_in_buckets("the containers have disks of their own, and there is no --volume")
        return
    for flag, path in training.paths.items():
        if storage.is_local(path) and not path.startswith(f"{mount}/"):
            raise UsageError(f"{flag} {path}: must be in a bucket, or below {mount} of --volume")


def _apply(path: str, *, quiet: bool) -> None:
    asked = ["kubectl", "apply", "-f", path]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_KUBECTL_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise MillraceError(f"kubectl did not answer for {_KUBECTL_SECONDS} s; {path} can be applied again") from error
    if done.returncode:
        said = " ".join(done.stderr.split())[:500]
        raise MillraceError(f"kubectl failed with exit code {done.returncode}: {said}; {path} can be applied again")
    if not quiet:
        print(done.stdout, end="", file=sys.stderr, flush=True)


def _told(settings: PodSettings, path: str, *, tfjob: bool, applied: bool) -> list[str]:
    namespace = f"-n {settings.namespace}"
    lines = [f"{'applied' if applied else 'written':<10} {path}"]
    if not applied:
        lines.append(f"next       kubectl apply -f {path}")
    # The operator names the pods; those of a Job end in random letters.
    chief = f"{settings.name}-chief-0" if tfjob else f"job/{settings.name}-chief"
    lines.append(f"           kubectl logs -f {chief} {namespace}")
    what = f"tfjob {settings.name}" if tfjob else f"job,service -l millrace-job={settings.name}"
    lines.append(f"           kubectl delete {what} {namespace}")
    return lines
