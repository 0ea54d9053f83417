"""The command line of `millrace submit`: the options that all platforms share, and the options of each platform."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from millrace.submit.training import check_variables, job_name, pairs, split_arguments
from schemas import command
from schemas.options import QUIET_HELP, Options, at_least, option, positive_finite
from trainer.spec.options import TrainOptions
from trainer.strategies.cluster import CHIEF, EVALUATOR, PS, WORKER

PROG = "python -m millrace.submit"
LOCAL, VERTEX, KUBERNETES = "local", "vertex", "kubernetes"
_SET_BY_SUBMIT = frozenset({"TF_CONFIG", "CLUSTER_SPEC", "MILLRACE_JOB", "AIP_MODEL_DIR", "JOB_COMPLETION_INDEX"})

_EPILOG = """\
examples:
  %(prog)s local --workers 2 --ps 1 -- train --data_dir out/ --model_dir model/
  %(prog)s vertex --project p --region us-central1 --image IMAGE \\
      -- train --data_dir gs://b/data --model_dir gs://b/model --max_steps 5000
  %(prog)s kubernetes --image IMAGE --output jobs.yaml -- train --data_dir gs://b/data --model_dir gs://b/model

What stands after -- is given to `train` unchanged, once it has been checked. docs/submit.md has worked examples.
Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted.
"""


_image = functools.partial(option, "an image with this package, such as that of docker/worker", None, metavar="IMAGE")
_labels = functools.partial(option, "labels of the job", (), metavar="KEY=VALUE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmitOptions(Options):
    """Options that all platforms share: the job's name, and how many processes there are.

    Attributes:
      training: the arguments after `--`; None: there was no `--`.
    """

    job_name: str | None = option("the job's name (default: millrace, the time, random digits)", None, metavar="NAME")
    workers: int = option("workers beside the chief (default: 0)", 0, check=at_least(0))
    ps: int = option("parameter servers; workers need one (default: 0)", 0, check=at_least(0))
    evaluator: bool = option(
        "evaluate and export in a process of its own; the default where there are workers or parameter servers", False
    )
    env: tuple[str, ...] = option("environment variables", (), metavar="KEY=VALUE")
    quiet: bool = option(QUIET_HELP, False)
    training: tuple[str, ...] | None = None

    @functools.cached_property
    def name(self) -> str:
        """The job's name; a generated name if the user gave none."""
        return job_name(self.job_name)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of processes of each role, without roles that have no process, in the order of `ROLES`.

        A chief in a cluster neither evaluates nor exports, so a cluster always has an evaluator.
        """
        evaluators = int(self.evaluator or self.ps > 0 or self.workers > 0)
        counts = {CHIEF: 1, WORKER: self.workers, PS: self.ps, EVALUATOR: evaluators}
        return {role: count for role, count in counts.items() if count}

    @functools.cached_property
    def variables(self) -> dict[str, str]:
        """The environment variables of `--env`, and the variable MILLRACE_JOB with the job's name."""
        variables = pairs(self.env, "--env")
        check_variables(variables, _SET_BY_SUBMIT)
        return {**variables, "MILLRACE_JOB": self.name}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VertexOptions(SubmitOptions):
    """The options of a job on Vertex AI."""

    project: str = option("the Google Cloud project", metavar="ID")
    region: str = option("the region, such as us-central1", metavar="NAME")
    image: str | None = _image()
    output_dir: str | None = option(
        "base output directory; without --model_dir the model is in its model/", None, metavar="DIR"
    )
    machine_type: str = option("each machine's type (default: %(default)s)", "n1-standard-8", metavar="TYPE")
    accelerator: str | None = option(
        "such as NVIDIA_L4:1, for chief and workers; the image needs its libraries (default: none)",
        None,
        metavar="TYPE:N",
    )
    disk_gb: int = option("each machine's boot disk (default: %(default)s)", 100, metavar="GB", check=at_least(100))
    spot: bool = option("use spot machines, which are cheaper and may be taken away", False)
    timeout_hours: float | None = option(
        "end the job after H hours (default: Vertex AI's 7 days)", None, metavar="H", check=positive_finite
    )
    labels: tuple[str, ...] = _labels()
    service_account: str | None = option("what the job runs as (default: Vertex AI's own)", None, metavar="EMAIL")
    network: str | None = option(
        "projects/NUMBER/global/networks/NAME, for a job without public addresses", None, metavar="NAME"
    )
    endpoint: str | None = option("another address of Vertex AI, such as one for tests", None, metavar="URL")
    no_auth: bool = option("send no credentials, for --endpoint", False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesOptions(SubmitOptions):
    """The options of the manifests for Kubernetes."""

    image: str | None = _image()
    output: str | None = option("where the manifests are written (default: NAME.yaml)", None, metavar="FILE")
    overwrite: bool = option("replace an existing file of manifests", False)
    namespace: str = option("the namespace (default: %(default)s)", "default", metavar="NAME")
    cpu: str = option("CPUs of each process (default: %(default)s)", "4", metavar="N")
    memory: str = option("memory of each process (default: %(default)s)", "16Gi", metavar="SIZE")
    gpus: int = option("nvidia.com/gpu of chief and workers (default: 0)", 0, check=at_least(0))
    restarts: int = option("how often a role's processes start again (default: 3)", 3, check=at_least(0))
    labels: tuple[str, ...] = _labels()
    service_account: str | None = option(
        "the service account of the pods (default: the namespace's)", None, metavar="NAME"
    )
    volume: str | None = option(
        "mount a PersistentVolumeClaim; --data_dir and --model_dir may then be below DIR", None, metavar="CLAIM=DIR"
    )


def _platform(name: str, options: type[SubmitOptions], what: str) -> command.Command[Any]:
    """Returns the command of a platform. The platform's module is imported only when the command runs."""

    def submit(options: SubmitOptions, prog: str) -> command.Report:
        report: command.Report = importlib.import_module(f"millrace.submit.{name}").submit(
            options, options.training, prog
        )
        return report

    return command.Command(
        prog=name,
        options=options,
        work=submit,
        description=f"Submits a training as {what}.",
        usage="%(prog)s [flags] -- train --data_dir DIR --model_dir DIR [flags of train]",
        instead={name: f"-- train --{name}" for name in TrainOptions.__dataclass_fields__},
    )


COMMANDS = command.Commands(
    prog=PROG,
    description="Submits a training: as several processes of this machine, to Vertex AI, or to Kubernetes.",
    epilog=_EPILOG,
    commands=(
        _platform(LOCAL, SubmitOptions, "processes of this machine"),
        _platform(VERTEX, VertexOptions, "a job of Vertex AI"),
        _platform(KUBERNETES, KubernetesOptions, "Jobs of Kubernetes"),
    ),
)
app = COMMANDS.app


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Submits a training. Returns the exit code: 0 done, 1 failed, 2 usage error, 130 interrupted."""
    own, training_argv = split_arguments(sys.argv[1:] if argv is None else argv)
    training = None if training_argv is None else tuple(training_argv)
    return command.run(functools.partial(COMMANDS.work, training=training), own, prog=prog)
