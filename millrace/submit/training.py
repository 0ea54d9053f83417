"""The training that is submitted: its arguments, read by the trainer's own parser before anything is staged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from millrace.submit.pools import Pools
from schemas.errors import UsageError
from trainer.flags import check_model
from trainer.replica.cluster import CHIEF, Cluster, Task
from trainer.spec.options import TrainOptions
from trainer.strategies.cluster import VARIABLE, check_cluster
from trainer.task import parse_options

TRAIN = "train"
_GCS = "gs://"


@dataclasses.dataclass(frozen=True)
class Training:
    """A training.

    Attributes:
      args: the arguments of `python -m trainer.task`, as given.
      options: what they say.
    """

    args: tuple[str, ...]
    options: TrainOptions

    @property
    def paths(self) -> dict[str, str]:
        """What every process reads or writes, by flag."""
        found = {"--data_dir": self.options.data_dir, "--model_dir": self.options.model_dir}
        if self.options.warm_start_from is not None:
            found["--warm_start_from"] = self.options.warm_start_from
        return found

    def check_in_buckets(self, why: str) -> None:
        """Refuses what is on this machine's disk.

        Raises:
          UsageError: one of them is not on gs://.
        """
        for flag, path in self.paths.items():
            if not path.startswith(_GCS):
                raise UsageError(f"{flag} {path}: {why}; use a folder in a bucket, such as gs://my-bucket/folder")


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The command's own arguments, and those after the first `--`; None where there is none."""
    if "--" not in argv:
        return list(argv), None
    at = list(argv).index("--")
    return list(argv[:at]), list(argv[at + 1 :])


def read_training(given: Sequence[str] | None, prog: str, *, model_dir: str | None = None) -> Training:
    """Reads what stands after `--`.

    Args:
      given: `train` and its arguments; None: there was no `--`.
      prog: the command as it was typed.
      model_dir: what the platform makes of `--model_dir` if it is not among the arguments; None: it must be.

    Raises:
      UsageError: this is no training, or one of its arguments is wrong.
    """
    if not given or given[0] != TRAIN:
        found = "nothing" if not given else given[0]
        raise UsageError(
            f"expected the training after --, such as -- train --data_dir ... --model_dir ...; found {found}"
        )
    args = tuple(given[1:])
    if {"-h", "--help"} & set(args):
        raise UsageError(f"{prog} ... -- train --help: see millrace train --help")
    if "--json" in args:
        raise UsageError("--json: stands before --, where it is for what is printed here")
    default = () if model_dir is None else ("--model_dir", model_dir)
    options = parse_options((*default, *args), "millrace train")
    check_model(options)
    return Training(args, options)


def check_strategy(training: Training, pools: Pools) -> None:
    """Refuses a `--strategy` that these processes cannot train by, before any of them would.

    Raises:
      UsageError: it needs other processes, or a single one.
    """
    if pools.workers and not pools.ps and training.options.strategy == "none":
        raise UsageError(
            f"--workers {pools.workers}: nobody would hold the variables that workers share; add --ps 1, or train with "
            "--strategy multi_worker, which stands after --"
        )
    hosts = {role: ("host:1",) * count for role, count in pools.sizes.items()}
    check_cluster(training.options.strategy, {VARIABLE: Cluster(hosts, Task(CHIEF, 0)).tf_config() or ""})


def check_own_model(training: Training, packages: Mapping[str, object]) -> None:
    """Refuses a model of one's own without a package that brings it to the other machines.

    Raises:
      UsageError: --model names a module, and there is no --package.
    """
    if ":" in training.options.model and not packages:
        module = training.options.model.partition(":")[0]
        raise UsageError(
            f"--model {training.options.model}: {module} has to be on the other machines, too; give --package with a "
            "wheel or sdist that holds it"
        )
