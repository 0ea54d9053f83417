"""The options that say where a job runs and what it may reject, the same for every job."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from schemas.command import QUIET_HELP, Group, Options, at_least, option, positive
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import UsageError

EXECUTION = Group("execution")
LIMIT = Group("reject limit", "The job fails, and keeps the rejects, if their number exceeds both limits.")
# Beam's own names; one with a dot is a class's path.
RUNNERS = (
    "FnApiRunner",
    "DirectRunner",
    "PrismRunner",
    "FlinkRunner",
    "SparkRunner",
    "PortableRunner",
    "DataflowRunner",
)

_SECRET = re.compile(r"secret|passw|token|credential|connection_string|access_key|private_key|api_key")

_run = functools.partial(option, group=EXECUTION)
_limit = functools.partial(option, group=LIMIT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOptions(Options):
    """Where a job runs, and how it is waited for.

    Raises:
      UsageError: an option is out of its range.
    """

    runner: str = _run(
        "the Beam runner: FnApiRunner (in-process, default; DirectRunner means the same here), DataflowRunner, "
        "FlinkRunner, PrismRunner, SparkRunner, PortableRunner, or the dotted name of a class",
        "FnApiRunner",
        metavar="NAME",
    )
    shared_disk: bool = _run(
        "local paths are on a file system that every worker of the cluster has under the same name", False
    )
    any_region: bool = _run(
        "allow buckets in other regions than the job on Dataflow, which costs money and time", False
    )
    start_timeout: float = _run(
        "on Prism, Flink and Spark: cancel the job if no worker has begun to read by then; 0: wait without limit "
        "(default: %(default)g)",
        900.0,
        metavar="SECONDS",
        check=at_least(0),
    )
    quiet: bool = _run(QUIET_HELP, False)
    verbose: bool = _run("also show the logs of TensorFlow and the Beam runner", False)
    no_wait: bool = False
    on_interrupt: Literal["ask", "cancel", "leave"] = "ask"
    flex_template: bool = False  # set by `beam_jobs.flex_template` alone
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runner not in RUNNERS and "." not in self.runner:
            near = difflib.get_close_matches(self.runner, RUNNERS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--runner {self.runner}: unknown runner{hint}; choose from {', '.join(RUNNERS)}")
        if self.no_wait and self.is_local:
            raise UsageError("--no_wait: the job runs in this process with FnApiRunner; use --runner DataflowRunner")

    @property
    def is_local(self) -> bool:
        """Whether Beam's in-process runner does the work."""
        return self.runner in ("FnApiRunner", "DirectRunner")

    @property
    def shuffles_in_memory(self) -> bool:
        """Whether the runner may hold all that it shuffles in memory, as Prism does. A PortableRunner may be Prism."""
        return self.runner in ("PrismRunner", "PortableRunner")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WaitOptions(RunnerOptions):
    """The same of a job that need not be waited for."""

    no_wait: bool = _run(
        "submit the job to the runner and return; the command `job` takes it up later. For DataflowRunner, and "
        "for PortableRunner with --job_endpoint and workers of their own",
        False,
    )
    on_interrupt: Literal["ask", "cancel", "leave"] = _run(
        "what Ctrl-C does with a job on such a runner: ask whether to cancel it, cancel it, or leave it to "
        "the command `job` (default: %(default)s; without a terminal, ask means cancel)",
        "ask",
    )


def fraction(flag: str, value: float) -> None:
    """A check that refuses what is no share."""
    if not 0 <= value <= 1:
        raise UsageError(f"{flag} {value:g}: must be from 0 to 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RejectLimits(Options):
    """How many records a job may reject, and how far a file may decompress."""

    max_rejects: int = _limit("number of rejects allowed (default: %(default)s)", 10, check=at_least(0))
    max_reject_fraction: float = _limit(
        "fraction of all records allowed to be rejects (default: %(default)s)", 0.001, metavar="F", check=fraction
    )
    max_input_ratio: float = _limit(
        "fail if a gzip'd CSV file decompresses to more than this many times its size (a gzip bomb); "
        "the first 64 MB are exempt (default: %(default)g)",
        MAX_INPUT_RATIO,
        metavar="F",
        check=positive,
    )


def check_unknown(rest: Sequence[str], own: Iterable[str]) -> None:
    """Checks the arguments that are not a command's own, and so are Beam's.

    Args:
      rest: the arguments.
      own: the names of the command's options.

    Raises:
      UsageError: one of them holds a secret, or is a misspelt option of the command.
    """
    flags = [f"--{name}" for name in own]
    for flag in (arg.split("=")[0] for arg in rest):
        if not flag.startswith("--"):
            continue
        if _SECRET.search(flag):
            raise UsageError(
                f"{flag}: do not pass secrets on the command line: pipeline options appear in process lists, logs and "
                "the runner's console. Provide credentials through the environment, as their library documents."
            )
        near = difflib.get_close_matches(flag.replace("-", "_").replace("__", "--", 1), flags, n=1, cutoff=0.85)
        if near:
            raise UsageError(f"{flag}: unknown option; did you mean {near[0]}?")
