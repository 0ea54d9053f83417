"""The training that is submitted: its arguments, read by the trainer's own parser before anything is staged.

How many processes a training has, by role.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from schemas.errors import UsageError
from trainer.models import check_model
from trainer.spec.options import TrainOptions
from trainer.strategies.cluster import CHIEF, EVALUATOR, PS, ROLES, WORKER, Cluster, Task, check_jobs
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


def check_bucket(flag: str, path: str | None) -> None:
    """Refuses a path that is not in a bucket; None is none.

    Raises:
      UsageError: it is not on gs://.
    """
    if path is not None and not path.startswith(_GCS):
        raise UsageError(f"{flag} {path}: must be in a bucket, such as gs://my-bucket/folder")


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
    check_jobs(training.options.strategy, set(Cluster(hosts, Task(CHIEF, 0)).jobs))


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


@dataclasses.dataclass(frozen=True)
class Pools:
    """The processes beside the chief, of which there is one.

    Raises:
      UsageError: a number of processes is negative.
    """

    workers: int = 0
    ps: int = 0
    evaluator: bool = False

    def __post_init__(self) -> None:
        for flag, count in (("--workers", self.workers), ("--ps", self.ps)):
            if count < 0:
                raise UsageError(f"{flag} {count}: must be 0 or more")

    @property
    def sizes(self) -> dict[str, int]:
        """How many there are of each role, in the order of `ROLES`, without those of which there is none.

        A chief in a cluster neither evaluates nor exports, so an evaluator comes with it.
        """
        evaluators = int(self.evaluator or self.ps > 0 or self.workers > 0)
        counts = {CHIEF: 1, WORKER: self.workers, PS: self.ps, EVALUATOR: evaluators}
        return {role: count for role, count in counts.items() if count}


def by_role(values: Sequence[str], flag: str, *, default_for: Sequence[str] = ROLES) -> dict[str, str]:
    """Values by role, of a flag whose values are VALUE for all roles or ROLE=VALUE.

    Args:
      values: as given.
      flag: the flag's name, for messages.
      default_for: the roles that a value without a role is for.

    Raises:
      UsageError: no such role, or two values for one.
    """
    found: dict[str, str] = {}
    named: dict[str, str] = {}
    for value in values:
        role, equals, own = value.partition("=")
        if equals and role not in ROLES:
            raise UsageError(f"{flag} {value}: {role} is no role; choose from {', '.join(ROLES)}")
        target = {role: own} if equals else dict.fromkeys(default_for, value)
        into = named if equals else found
        if target.keys() & into.keys():
            raise UsageError(f"{flag} {value}: given twice for {', '.join(sorted(target.keys() & into.keys()))}")
        into.update(target)
    return {**found, **named}


def pairs(values: Sequence[str], flag: str) -> dict[str, str]:
    """`KEY=VALUE` arguments as a dictionary.

    Raises:
      UsageError: no `=`, no key, or a key twice.
    """
    found: dict[str, str] = {}
    for value in values:
        key, equals, held = value.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} {value}: expected KEY=VALUE")
        if key in found:
            raise UsageError(f"{flag} {value}: {key} is given twice")
        found[key] = held
    return found
