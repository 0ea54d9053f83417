"""The command line of `millrace submit`: what is the same on every platform, and each platform's own."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, TypeVar

from millrace.submit import training, vertex_study
from millrace.submit.package import job_name
from schemas import command

T = TypeVar("T")
PROG = "python -m millrace.submit"
LOCAL, VERTEX, KUBERNETES = "local", "vertex", "kubernetes"
JOB, TFJOB = "job", "tfjob"

_EPILOG = """\
examples:
  %(prog)s local --workers 2 --ps 1 -- train --data_dir out/ --model_dir model/
  %(prog)s vertex --project p --region us-central1 --staging_bucket gs://b --image IMAGE \\
      -- train --data_dir gs://b/data --model_dir gs://b/model --max_steps 5000
  %(prog)s vertex ... --output_dir gs://b/study --tune learning_rate=double:0.0001:0.1:log --trials 20 \\
      -- train --data_dir gs://b/data --best_metric accuracy
  %(prog)s kubernetes --image IMAGE --output jobs.yaml -- train --data_dir gs://b/data --model_dir gs://b/model

What stands after -- is given to `train` unchanged, once it has been checked. docs/submit.md has worked examples.
Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted.
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser, of what stands before `--`."""
    p = command.Parser(
        prog=prog,
        description="Submits a training: as several processes of this machine, to Vertex AI, or to Kubernetes.",
        epilog=_EPILOG,
    )
    platforms = p.add_subparsers(dest="platform", required=True, metavar="PLATFORM")
    usage = "%(prog)s [flags] -- train --data_dir DIR --model_dir DIR [flags of train]"
    for name, what, add_own in (
        (LOCAL, "processes of this machine", _local),
        (VERTEX, "a job of Vertex AI, or many with --tune", _vertex),
        (KUBERNETES, "Jobs of Kubernetes, or a TFJob", _kubernetes),
    ):
        sub = platforms.add_parser(name, help=what, description=f"Submits a training as {what}.", usage=usage)
        sub.add_argument(
            "--job_name", metavar="NAME", help="the job's name (default: millrace, the time, random digits)"
        )
        training.add_flags(sub)
        add_own(sub)
        sub.add_argument("--quiet", action="store_true", help=command.QUIET_HELP)
        sub.add_argument("--json", action="store_true", help=command.JSON_HELP)
    return p


def settings_of(kind: type[T], options: argparse.Namespace) -> T:
    """What a platform is told of a job: a dataclass whose fields have the names of the flags.

    Args:
      kind: `JobSettings` or `PodSettings`.
      options: the platform's flags, and those of all platforms.

    Raises:
      UsageError: a value is not what the platform takes.
    """
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given: dict[str, Any] = {name: value for name, value in vars(options).items() if name in names}
    given["name"] = job_name(options.job_name)
    given["pools"] = training.Pools(options.workers, options.ps, options.evaluator)
    given["variables"] = training.pairs(options.env, "--env")
    given["labels"] = training.pairs(options.labels, "--labels")
    return kind(**given)


def _local(p: argparse.ArgumentParser) -> None:
    _variables(p)


def _vertex(p: argparse.ArgumentParser) -> None:
    add = p.add_argument
    add("--project", required=True, metavar="ID", help="the Google Cloud project")
    add("--region", required=True, metavar="NAME", help="the region, such as us-central1")
    add(
        "--staging_bucket",
        required=True,
        metavar="DIR",
        help="where packages are staged, such as gs://my-bucket/staging",
    )
    _image(p)
    add("--output_dir", metavar="DIR", help="base output directory; without --model_dir the model is in its model/")
    add(
        "--machine_type",
        nargs="+",
        action="extend",
        default=[],
        metavar="TYPE",
        help="TYPE for all roles, or ROLE=TYPE with the role chief, worker, ps or evaluator (default: n1-standard-8)",
    )
    add(
        "--accelerator",
        nargs="+",
        action="extend",
        default=[],
        metavar="TYPE:N",
        help="such as NVIDIA_L4:1 for chief and workers, or ROLE=TYPE:N; the image needs its libraries (default: none)",
    )
    add("--disk_gb", type=int, default=100, metavar="GB", help="each machine's boot disk (default: %(default)s)")
    add("--spot", action="store_true", help="use spot machines, which are cheaper and may be taken away")
    add("--restart_job", action="store_true", help="start the whole job again, not only the replica that has failed")
    add("--timeout_hours", type=float, metavar="H", help="end the job after H hours (default: Vertex AI's 7 days)")
    _variables(p)
    _labels(p)
    add("--service_account", metavar="EMAIL", help="what the job runs as (default: Vertex AI's own)")
    add("--network", metavar="NAME", help="projects/NUMBER/global/networks/NAME, for a job without public addresses")
    add(
        "--tensorboard",
        metavar="NAME",
        help="projects/ID/locations/REGION/tensorboards/NUMBER; needs --service_account",
    )
    add("--any_region", action="store_true", help="allow buckets in other regions than the job")
    add("--no_wait", action="store_true", help="return when the job has been submitted")
    add(
        "--on_interrupt",
        choices=("ask", "cancel", "leave"),
        default="ask",
        help="what Ctrl-C does with the job (default: ask; without a terminal: cancel)",
    )
    add("--endpoint", metavar="URL", help="another address of Vertex AI and Cloud Logging, such as one for tests")
    add("--no_auth", action="store_true", help="send no credentials, for --endpoint")
    vertex_study.add_flags(p)


def _kubernetes(p: argparse.ArgumentParser) -> None:
    add = p.add_argument
    _image(p)
    add(
        "--kind",
        choices=(JOB, TFJOB),
        default=JOB,
        help="job: a Job for each role and a Service; tfjob: a TFJob, for a cluster with Kubeflow's training operator "
        "(default: %(default)s)",
    )
    add("--output", metavar="FILE", help="where the manifests are written (default: NAME.yaml)")
    add("--overwrite", action="store_true", help="replace an existing file of manifests")
    add("--apply", action="store_true", help="also apply them with kubectl")
    add("--namespace", default="default", metavar="NAME", help="the namespace (default: %(default)s)")
    add(
        "--staging_bucket",
        metavar="DIR",
        help="stage this package there, and install it in the containers (default: run what the image has)",
    )
    add("--cpu", default="4", metavar="N", help="CPUs of each process (default: %(default)s)")
    add("--memory", default="16Gi", metavar="SIZE", help="memory of each process (default: %(default)s)")
    add("--gpus", type=int, default=0, metavar="N", help="nvidia.com/gpu of chief and workers (default: 0)")
    add("--restarts", type=int, default=3, metavar="N", help="how often a role's processes start again (default: 3)")
    _variables(p)
    _labels(p)
    add("--service_account", metavar="NAME", help="the service account of the pods (default: the namespace's)")
    add(
        "--volume",
        metavar="CLAIM=DIR",
        help="mount a PersistentVolumeClaim; --data_dir and --model_dir may then be below DIR",
    )


def _image(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--image", metavar="IMAGE", help="an image with the pinned dependencies, such as that of docker/worker"
    )
    p.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="FILE",
        help="a wheel or sdist to install too, such as that of a model of your own; repeat for several",
    )


def _variables(p: argparse.ArgumentParser) -> None:
    p.add_argument("--env", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="environment variables")


def _labels(p: argparse.ArgumentParser) -> None:
    p.add_argument("--labels", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="labels of the job")
