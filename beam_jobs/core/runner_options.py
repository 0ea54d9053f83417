"""The options that say where a job runs, the same for every job."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from schemas import command
from schemas.errors import UsageError

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """Where a job runs, and how it is waited for.

    Raises:
      UsageError: an option is out of its range.
    """

    runner: str = "FnApiRunner"
    start_timeout: float = 900.0
    quiet: bool = False
    verbose: bool = False
    trust: bool = False
    no_wait: bool = False
    on_interrupt: Literal["ask", "cancel", "leave"] = "ask"
    shared_disk: bool = False
    any_region: bool = False
    flex_template: bool = False  # set by `beam_jobs.flex_template` alone
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.start_timeout >= 0:  # so that NaN is refused, too
            raise UsageError(f"--start_timeout {self.start_timeout}: must be 0 or more")
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


def add_runner_flags(group: Any) -> None:
    """Adds the flags that every job has to its parser, or to a group of it."""
    group.add_argument(
        "--runner",
        default="FnApiRunner",
        metavar="NAME",
        help="the Beam runner: FnApiRunner (in-process, default; DirectRunner means the same here), DataflowRunner, "
        "FlinkRunner, PrismRunner, SparkRunner, PortableRunner, or the dotted name of a class",
    )
    group.add_argument(
        "--shared_disk",
        action="store_true",
        help="local paths are on a file system that every worker of the cluster has under the same name",
    )
    group.add_argument(
        "--any_region",
        action="store_true",
        help="allow buckets in other regions than the job on Dataflow, which costs money and time",
    )
    group.add_argument(
        "--start_timeout",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="on Prism, Flink and Spark: cancel the job if no worker has begun to read by then; 0: wait without limit "
        "(default: %(default)g)",
    )
    group.add_argument("--quiet", action="store_true", help=command.QUIET_HELP)
    group.add_argument("--verbose", action="store_true", help="also show the logs of TensorFlow and the Beam runner")


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
