"""Reads the training that is to be submitted: parses its arguments by the trainer's own parser, and checks them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import secrets
from collections.abc import Mapping, Sequence

from schemas.errors import UsageError
from trainer.loop.checks import check_training
from trainer.models.selection import PATHS
from trainer.spec.hparams import split_settings
from trainer.spec.options import TrainOptions
from trainer.strategies.cluster import CHIEF, PS, WORKER, Cluster, Task, check_jobs
from trainer.task import parse_options

TRAIN = "train"
_GCS = "gs://"


@dataclasses.dataclass(frozen=True)
class SubmittedTraining:
    """The training that is to be submitted.

    Attributes:
      args: the arguments of `python -m trainer.task`, as the user gave them.
      options: the options that were parsed from `args`.
    """

    args: tuple[str, ...]
    options: TrainOptions

    @property
    def command(self) -> list[str]:
        """The command that each container runs."""
        return ["python", "-m", "trainer.replica", *self.args]

    @property
    def paths(self) -> dict[str, str]:
        """The paths that every process reads or writes, by flag."""
        paths = {"--data_dir": self.options.data_dir, "--model_dir": self.options.model_dir}
        if self.options.warm_start_from is not None:
            paths["--warm_start_from"] = self.options.warm_start_from
        for name, _, value in (setting.partition("=") for setting in split_settings(self.options.hparams)):
            if name in PATHS and ":" not in (self.options.model or ""):
                paths[f"--hparams {name}"] = value
        return paths

    def check_in_buckets(self, why: str) -> None:
        """Refuses paths on this machine's disk.

        Args:
          why: the reason, for the message.

        Raises:
          UsageError: a path of the training is not on gs://.
        """
        for flag, path in self.paths.items():
            if not path.startswith(_GCS):
                raise UsageError(f"{flag} {path}: {why}; use a folder in a bucket, such as gs://my-bucket/folder")


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Splits arguments at the first `--`. Returns those before it and those after it; None if there is no `--`."""
    if "--" not in argv:
        return list(argv), None
    at = list(argv).index("--")
    return list(argv[:at]), list(argv[at + 1 :])


def read_training(
    arguments: Sequence[str] | None, prog: str, sizes: Mapping[str, int], *, model_dir: str | None = None
) -> SubmittedTraining:
    """Parses and checks the training after `--`.

    Args:
      arguments: `train` and its arguments; None: there was no `--`.
      prog: the command as it was typed, for messages.
      sizes: the number of processes by role.
      model_dir: the model directory that the platform provides if `--model_dir` is not given; None: `--model_dir` is
        required.

    Raises:
      UsageError: the arguments are not those of a training, one of them is wrong, or the strategy does not fit the
        processes.
    """
    if not arguments or arguments[0] != TRAIN:
        raise UsageError(
            "expected the training after --, such as -- train --data_dir ... --model_dir ...; found "
            f"{arguments[0] if arguments else 'nothing'}"
        )
    args = tuple(arguments[1:])
    if {"-h", "--help"} & set(args):
        raise UsageError(f"{prog} ... -- train --help: see millrace train --help")
    if "--json" in args:
        raise UsageError("--json: stands before --, where it is for what is printed here")
    default = () if model_dir is None else ("--model_dir", model_dir)
    options = parse_options((*default, *args), "millrace train")
    check_training(options)
    if WORKER in sizes and PS not in sizes and options.strategy == "none":
        raise UsageError(f"--workers {sizes[WORKER]}: nobody would hold the variables that workers share; add --ps 1")
    hosts = {role: ("host:1",) * count for role, count in sizes.items()}
    check_jobs(options.strategy, set(Cluster(hosts, Task(CHIEF, 0)).jobs))
    return SubmittedTraining(args, options)


def pairs(values: Sequence[str], flag: str) -> dict[str, str]:
    """Parses `KEY=VALUE` arguments into a dictionary.

    Args:
      values: the arguments.
      flag: the flag, for messages.

    Raises:
      UsageError: an argument has no `=` or no key, or a key occurs twice.
    """
    values_by_key: dict[str, str] = {}
    for value in values:
        key, equals, content = value.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} {value}: expected KEY=VALUE")
        if key in values_by_key:
            raise UsageError(f"{flag} {value}: {key} is given twice")
        values_by_key[key] = content
    return values_by_key


_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")  # room for -evaluator-0 in the 63 characters of a host's name


def job_name(name: str | None) -> str:
    """Checks the job's name, or makes one from the time and four random hex digits if it is None.

    Raises:
      UsageError: the name cannot be used for hosts and objects of the platforms.
    """
    if name is None:
        return f"millrace-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--job_name {name}: expected a letter, then letters, digits and hyphens, all in lower case, 40 at most"
        )
    return name


def check_variables(variables: Mapping[str, str], reserved: frozenset[str]) -> None:
    """Checks the names of environment variables.

    Args:
      variables: the variables.
      reserved: names that the platform or this command sets.

    Raises:
      UsageError: a name is invalid or reserved.
    """
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"--env {name}=...: not a valid name of an environment variable")
        if name in reserved:
            raise UsageError(f"--env {name}=...: is set for each process; it cannot be given")
