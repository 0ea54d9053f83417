"""The command line of `millrace submit`: what is the same on every platform, and each platform's own."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Literal

from millrace.submit.training import Pools, job_name, pairs, split_arguments
from millrace.tune import space
from schemas import command
from schemas.options import QUIET_HELP, Group, Options, at_least, option, positive_finite
from trainer.spec.options import TrainOptions

PROG = "python -m millrace.submit"
LOCAL, VERTEX, KUBERNETES = "local", "vertex", "kubernetes"
JOB, TFJOB = "job", "tfjob"
TRIALS, PARALLEL = 10, 2

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


TUNING = Group("hyper-parameter tuning")
_tune = functools.partial(option, group=TUNING)
_image = functools.partial(
    option, "an image with the pinned dependencies, such as that of docker/worker", None, metavar="IMAGE"
)
_package = functools.partial(
    option,
    "a wheel or sdist to install too, such as that of a model of your own; repeat for several",
    (),
    nargs=None,
    action="append",
    metavar="FILE",
)
_variables = functools.partial(option, "environment variables", (), metavar="KEY=VALUE")
_labels = functools.partial(option, "labels of the job", (), metavar="KEY=VALUE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmitOptions(Options):
    """What is the same on every platform: the job's name, and how many processes there are.

    Attributes:
      training: what stands after `--`; None: nothing.
    """

    job_name: str | None = option("the job's name (default: millrace, the time, random digits)", None, metavar="NAME")
    workers: int = option("workers beside the chief (default: 0)", 0, check=at_least(0))
    ps: int = option(
        "parameter servers; workers need one, or --strategy multi_worker (default: 0)", 0, check=at_least(0)
    )
    evaluator: bool = option(
        "evaluate and export in a process of its own; the default where there are workers or parameter servers", False
    )
    quiet: bool = option(QUIET_HELP, False, order=1)
    training: tuple[str, ...] | None = None

    @functools.cached_property
    def name(self) -> str:
        """The job's name, made up where none is given."""
        return job_name(self.job_name)

    @property
    def pools(self) -> Pools:
        """The processes beside the chief."""
        return Pools(self.workers, self.ps, self.evaluator)

    def pairs(self, name: str) -> dict[str, str]:
        """The KEY=VALUE arguments of a flag, `env` or `labels`, as a dictionary."""
        return pairs(getattr(self, name), f"--{name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions(SubmitOptions):
    """The options of a training in processes of this machine."""

    env: tuple[str, ...] = _variables()


@dataclasses.dataclass(frozen=True, kw_only=True)
class VertexOptions(SubmitOptions):
    """The options of a job of Vertex AI."""

    project: str = option("the Google Cloud project", metavar="ID")
    region: str = option("the region, such as us-central1", metavar="NAME")
    staging_bucket: str = option("where packages are staged, such as gs://my-bucket/staging", metavar="DIR")
    image: str | None = _image()
    package: tuple[str, ...] = _package()
    output_dir: str | None = option(
        "base output directory; without --model_dir the model is in its model/", None, metavar="DIR"
    )
    machine_type: tuple[str, ...] = option(
        "TYPE for all roles, or ROLE=TYPE with the role chief, worker, ps or evaluator (default: n1-standard-8)",
        (),
        metavar="TYPE",
    )
    accelerator: tuple[str, ...] = option(
        "such as NVIDIA_L4:1 for chief and workers, or ROLE=TYPE:N; the image needs its libraries (default: none)",
        (),
        metavar="TYPE:N",
    )
    disk_gb: int = option("each machine's boot disk (default: %(default)s)", 100, metavar="GB", check=at_least(100))
    spot: bool = option("use spot machines, which are cheaper and may be taken away", False)
    restart_job: bool = option("start the whole job again, not only the replica that has failed", False)
    timeout_hours: float | None = option(
        "end the job after H hours (default: Vertex AI's 7 days)", None, metavar="H", check=positive_finite
    )
    env: tuple[str, ...] = _variables()
    labels: tuple[str, ...] = _labels()
    service_account: str | None = option("what the job runs as (default: Vertex AI's own)", None, metavar="EMAIL")
    network: str | None = option(
        "projects/NUMBER/global/networks/NAME, for a job without public addresses", None, metavar="NAME"
    )
    tensorboard: str | None = option(
        "projects/ID/locations/REGION/tensorboards/NUMBER; needs --service_account", None, metavar="NAME"
    )
    any_region: bool = option("allow buckets in other regions than the job", False)
    no_wait: bool = option("return when the job has been submitted", False)
    on_interrupt: Literal["ask", "cancel", "leave"] = option(
        "what Ctrl-C does with the job (default: ask; without a terminal: cancel)", "ask"
    )
    endpoint: str | None = option(
        "another address of Vertex AI and Cloud Logging, such as one for tests", None, metavar="URL"
    )
    no_auth: bool = option("send no credentials, for --endpoint", False)
    tune: tuple[str, ...] = _tune(
        "submit a study, whose trials try values of these hyper-parameters or flags of train, or of those that a YAML "
        f"file lists: {space.FORMS}; the metric is train's --best_metric",
        (),
        metavar="NAME=KIND:VALUES",
    )
    trials: int | None = _tune(f"how many trials (default: {TRIALS})", None, check=at_least(1))
    parallel_trials: int | None = _tune(f"how many run at a time (default: {PARALLEL})", None, check=at_least(1))
    failed_trials: int | None = _tune("give up after N failed trials (default: Vertex AI decides)", None)
    search: str | None = _tune(
        "bayesian learns from earlier trials, grid tries all combinations (default: bayesian)",
        None,
        choices=space.SEARCHES,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesOptions(SubmitOptions):
    """The options of Kubernetes's manifests."""

    image: str | None = _image()
    package: tuple[str, ...] = _package()
    kind: str = option(
        "job: a Job for each role and a Service; tfjob: a TFJob, for a cluster with Kubeflow's training operator "
        "(default: %(default)s)",
        JOB,
        choices=(JOB, TFJOB),
    )
    output: str | None = option("where the manifests are written (default: NAME.yaml)", None, metavar="FILE")
    overwrite: bool = option("replace an existing file of manifests", False)
    apply: bool = option("also apply them with kubectl", False)
    namespace: str = option("the namespace (default: %(default)s)", "default", metavar="NAME")
    staging_bucket: str | None = option(
        "stage this package there, and install it in the containers (default: run what the image has)",
        None,
        metavar="DIR",
    )
    cpu: str = option("CPUs of each process (default: %(default)s)", "4", metavar="N")
    memory: str = option("memory of each process (default: %(default)s)", "16Gi", metavar="SIZE")
    gpus: int = option("nvidia.com/gpu of chief and workers (default: 0)", 0, check=at_least(0))
    restarts: int = option("how often a role's processes start again (default: 3)", 3, check=at_least(0))
    env: tuple[str, ...] = _variables()
    labels: tuple[str, ...] = _labels()
    service_account: str | None = option(
        "the service account of the pods (default: the namespace's)", None, metavar="NAME"
    )
    volume: str | None = option(
        "mount a PersistentVolumeClaim; --data_dir and --model_dir may then be below DIR", None, metavar="CLAIM=DIR"
    )


def _platform(name: str, options: type[SubmitOptions], what: str) -> command.Command[Any]:
    """The command of a platform, whose module is imported when it is asked for."""

    def submit(options: SubmitOptions, prog: str) -> command.Report:
        report: command.Report = importlib.import_module(f"millrace.submit.{name}").submit(
            options, options.training, prog
        )
        return report

    return command.Command(
        prog=name,
        options=options,
        work=submit,
        summary=what,
        description=f"Submits a training as {what}.",
        usage="%(prog)s [flags] -- train --data_dir DIR --model_dir DIR [flags of train]",
        instead={name: f"-- train --{name}" for name in TrainOptions.__dataclass_fields__},
    )


COMMANDS = command.Commands(
    prog=PROG,
    description="Submits a training: as several processes of this machine, to Vertex AI, or to Kubernetes.",
    epilog=_EPILOG,
    called="PLATFORM",
    commands=(
        _platform(LOCAL, LocalOptions, "processes of this machine"),
        _platform(VERTEX, VertexOptions, "a job of Vertex AI, or many with --tune"),
        _platform(KUBERNETES, KubernetesOptions, "Jobs of Kubernetes, or a TFJob"),
    ),
)
parser = COMMANDS.parser


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Submits a training. Returns the exit code: 0 done, 1 failed, 2 usage error, 130 interrupted."""
    own, given = split_arguments(sys.argv[1:] if argv is None else argv)
    training = None if given is None else tuple(given)
    return command.run(functools.partial(COMMANDS.work, training=training), own, prog=prog)
