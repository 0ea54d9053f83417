"""`millrace submit kubernetes`: writes the manifests of a training, and applies them with kubectl where asked."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from millrace.submit.flags import TFJOB, settings_of
from millrace.submit.kubernetes_jobs import jobs
from millrace.submit.kubernetes_pods import PodSettings
from millrace.submit.kubernetes_tfjob import tfjob
from millrace.submit.package import FOLDER, Packages, own_packages
from millrace.submit.training import Training, check_own_model, check_strategy, read_training
from schemas import command, storage
from schemas.errors import MillraceError, UsageError

_KUBECTL_SECONDS = 120


def submit(options: argparse.Namespace, given: Sequence[str] | None, prog: str) -> command.Report:
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
