"""`millrace submit kubernetes`: writes the manifests of a training, and applies them with kubectl where asked.

They are Jobs, an indexed one for each role of a training, and a headless Service that names the pods. The pods of an
indexed Job are called JOB-INDEX, and with the Service's name as their subdomain that is their address, before they run
and after they were started again.

Or they are a TFJob of Kubeflow's training operator (v1), which starts the pods of all roles and sets TF_CONFIG for
them. What the operator does is read from its release 1.9: it gives each pod a Service, and sets TF_CONFIG where there
are several pods, with the roles in lower case and the evaluator among them, as `trainer.strategies.cluster` reads it.
The job has succeeded when the chief has, and then what still runs is removed. That is why the chief waits for the
evaluator."""

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

from millrace.submit.command import TFJOB, KubernetesOptions
from millrace.submit.training import (
    FOLDER,
    Packages,
    Training,
    check_bucket,
    check_forms,
    check_labels,
    check_own_model,
    check_strategy,
    check_variables,
    own_packages,
    read_training,
)
from schemas import command, storage
from schemas.errors import MillraceError, UsageError
from trainer.strategies.cluster import CHIEF, EVALUATOR, PS, WORKER

PORT = 2222
SET_THERE = frozenset({"TF_CONFIG", "CLUSTER_SPEC", "MILLRACE_JOB", "JOB_COMPLETION_INDEX"})
_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NO_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = r"[0-9]+(\.[0-9]+)?(m|[EPTGMk]i?)?"
_FORMS = {
    "namespace": (r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "lower-case letters, digits and hyphens"),
    "cpu": (_QUANTITY, "a quantity, such as 4 or 500m"),
    "memory": (_QUANTITY, "a quantity, such as 16Gi"),
    "service_account": (_NAME, "lower-case letters, digits, hyphens and dots"),
    "volume": (rf"{_NAME}=/[^:]*[^:/]", "CLAIM=DIR, such as data=/mnt/data"),
}


def check_pods(options: KubernetesOptions) -> None:
    """Checks what the pods are given beside their code.

    Raises:
      UsageError: a value is not what Kubernetes takes.
    """
    options.name, options.pools  # noqa: B018 - checks them
    variables, labels = options.pairs("env"), options.pairs("labels")
    check_forms(options, _FORMS)
    check_variables(variables, SET_THERE)
    check_labels(labels, _LABEL, _NO_LABEL, "up to 63 letters, digits, dots, hyphens and underscores")


_ROLES = {CHIEF: "Chief", WORKER: "Worker", PS: "PS", EVALUATOR: "Evaluator"}  # as a TFJob names them


def manifests(options: KubernetesOptions, command: Sequence[str]) -> list[dict[str, Any]]:
    """The documents to apply: a Service and a Job for each role, or a TFJob.

    Args:
      options: what the pods are given, and what starts them.
      command: what runs in each container.
    """
    import yaml

    parts = yaml.safe_load(storage.read_bytes(str(Path(__file__).with_name("kubernetes.yaml"))))
    tfjob = options.kind == TFJOB
    own = {"millrace-job": options.name}
    values: dict[str, Any] = {
        "name": options.name,
        "namespace": options.namespace,
        "labels": {**options.pairs("labels"), **own},
        "image": options.image,
        "command": [_literal(part) for part in command],
        "service_account": options.service_account,
        # The operator looks for a container and a port of these names.
        "container": "tensorflow" if tfjob else "trainer",
        "port": "tfjob-port" if tfjob else "tensorflow",
    }
    if options.volume is not None:
        claim, _, mount = options.volume.partition("=")
        values["mounts"] = [{"name": "data", "mountPath": mount}]
        values["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]

    def of_role(part: str, role: str, count: int) -> dict[str, Any]:
        """A document of a role, with the specification of its pods."""
        fixed = {"MILLRACE_JOB": options.name, "PYTHONUNBUFFERED": "1", **options.pairs("env")}
        env = [{"name": name, "value": _literal(value)} for name, value in fixed.items()]
        limits = {"cpu": options.cpu, "memory": options.memory}
        if options.gpus and role in (CHIEF, WORKER):
            limits["nvidia.com/gpu"] = str(options.gpus)
        of_pod = {"limits": limits, "env": env if tfjob else [*_tf_config(options, role), *env]}
        counted = {"count": count, "restarts": options.restarts * count, "role_name": f"{options.name}-{role}"}
        labels = {**values["labels"], "millrace-role": role}
        made: dict[str, Any] = _filled(parts[part], {**values, **counted, "role_labels": labels})
        of_pods = (made if tfjob else made["spec"])["template"]
        of_pods["spec"] = {**of_pods.get("spec", {}), **_filled(parts["pod"], {**values, **of_pod})}
        return made

    sizes = options.pools.sizes.items()
    if tfjob:
        replicas = {_ROLES[role]: of_role("replicas", role, count) for role, count in sizes}
        return [_filled(parts["tfjob"], {**values, "restarts": options.restarts, "replicas": replicas})]
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


def _tf_config(options: KubernetesOptions, role: str) -> list[dict[str, Any]]:
    """TF_CONFIG is one text for all pods of a role: Kubernetes puts each one's index in its place."""
    cluster = {
        each: [f"{options.name}-{each}-{i}.{options.name}:{PORT}" for i in range(count)]
        for each, count in options.pools.sizes.items()
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
    check_pods(options)
    check_strategy(training, options.pools)
    _check_paths(training, None if options.volume is None else options.volume.partition("=")[2])
    if options.apply and shutil.which("kubectl") is None:
        raise UsageError("--apply: there is no kubectl on PATH; leave it out, and apply the file elsewhere")
    path = options.output or f"{options.name}.yaml"
    storage.check_output(path, overwrite=options.overwrite)
    if options.apply and not storage.is_local(path):
        raise UsageError(f"--output {path}: kubectl applies local files; give one, or leave --apply out")
    run = ["python", "-m", "trainer.replica", *training.args]
    packages = None
    if options.staging_bucket is not None:
        packages = Packages(storage.join(options.staging_bucket, FOLDER, options.name), own, training.extras)
        run = packages.command(training.args)
    documents = manifests(options, run)

    storage.write_bytes(path, yaml.safe_dump_all(documents, sort_keys=False, width=120).encode())
    if packages is not None:
        packages.stage()
    if options.apply:
        _apply(path, quiet=options.quiet)
    data = {"job": options.name, "kind": options.kind, "namespace": options.namespace}
    told = _told(options, path)
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


def _told(options: KubernetesOptions, path: str) -> list[str]:
    namespace = f"-n {options.namespace}"
    lines = [f"{'applied' if options.apply else 'written':<10} {path}"]
    if not options.apply:
        lines.append(f"next       kubectl apply -f {path}")
    # The operator names the pods; those of a Job end in random letters.
    chief = f"{options.name}-chief-0" if options.kind == TFJOB else f"job/{options.name}-chief"
    lines.append(f"           kubectl logs -f {chief} {namespace}")
    what = f"tfjob {options.name}" if options.kind == TFJOB else f"job,service -l millrace-job={options.name}"
    lines.append(f"           kubectl delete {what} {namespace}")
    return lines
