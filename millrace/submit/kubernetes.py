"""What the pods of a training on Kubernetes are given, whatever starts them."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.submit.flags import TFJOB, KubernetesOptions, settings_of
from millrace.submit.package import FOLDER, Packages, check_labels, check_variables, own_packages
from millrace.submit.training import Pools, Training, check_own_model, check_strategy, read_training
from schemas import command, storage
from schemas.errors import MillraceError, UsageError
from trainer.replica.cluster import CHIEF, EVALUATOR, PS, WORKER

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


_KUBECTL_SECONDS = 120


def submit(options: KubernetesOptions, given: Sequence[str] | None, prog: str) -> command.Report:
    """Writes the manifests; with --apply, applies them.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong; nothing was staged.
      MillraceError: a file cannot be written, or kubectl failed.
    """
    if not options.image:
        raise UsageError(
            "--image: missing; the containers need an image with the pinned dependencies: docker/worker builds one"
        )
    if options.staging_bucket is not None and not options.staging_bucket.startswith("gs://"):
        where = options.staging_bucket
        raise UsageError(f"--staging_bucket {where}: must be in a bucket, such as gs://my-bucket/folder")
    training = read_training(given, prog)
    own = own_packages(options.package)
    if own and options.staging_bucket is None:
        raise UsageError("--package: needs --staging_bucket, from which the containers install it")
    check_own_model(training, own)
    settings = settings_of(PodSettings, options)
    check_strategy(training, settings.pools)
    _check_paths(training, settings.mount)
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
    documents = (tfjob if options.kind == TFJOB else jobs)(settings, run)

    _write(path, documents)
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


def _write(path: str, documents: Sequence[dict[str, Any]]) -> None:
    import yaml

    storage.write_bytes(path, yaml.safe_dump_all(documents, sort_keys=False, width=120).encode())


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
