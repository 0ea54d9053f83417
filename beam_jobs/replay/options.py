"""The options of a replay: corrected rejects into the dataset that rejected them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from beam_jobs.core.options import PROG, REPLAY, JobOptions, parse_known
from schemas.errors import UsageError

_SHARED = ("runner", "start_timeout", "quiet", "verbose", "trust", "shared_disk", "any_region")


@dataclasses.dataclass(frozen=True)
class ReplayOptions:
    """What one replay is asked to do. All else is the dataset's own: schema, transform, compression, seed."""

    replay: tuple[str, ...]
    append_to: str
    runner: str = "FnApiRunner"
    start_timeout: float = 900.0
    quiet: bool = False
    verbose: bool = False
    trust: bool = False
    shared_disk: bool = False
    any_region: bool = False
    beam_args: tuple[str, ...] = ()

    def job(self) -> JobOptions:
        """What the runner is chosen by."""
        return JobOptions(
            schema="",
            input=(),
            output=self.append_to,
            runner=self.runner,
            start_timeout=self.start_timeout,
            quiet=self.quiet,
            verbose=self.verbose,
            shared_disk=self.shared_disk,
            any_region=self.any_region,
            beam_args=self.beam_args,
        )


def wants_replay(argv: Sequence[str]) -> bool:
    """Whether a command line asks for a replay."""
    return any(_flag(arg) == "--replay" for arg in argv)


def parse_replay(argv: Sequence[str], *, prog: str = PROG) -> ReplayOptions:
    """Parses a command line that asks for a replay.

    Raises:
      UsageError: an option is missing, misspelt, or belongs to a job from raw files.
    """
    values, beam_args = parse_known(argv, mode="replay", prog=prog)
    given = {_flag(arg)[2:] for arg in argv}
    foreign = [f"--{name}" for name in values if name in given and name not in (*REPLAY, *_SHARED, "json")]
    if foreign:
        raise UsageError(
            f"{foreign[0]}: not with --replay. Corrected rejects go through the schema and the transform that the "
            "dataset --append_to was written with; give only --replay, --append_to, --runner, --start_timeout, "
            "--trust, --quiet, --verbose and --json."
        )
    shared = {name: values[name] for name in _SHARED}
    options = ReplayOptions(tuple(values["replay"]), values["append_to"], **shared, beam_args=beam_args)
    options.job()  # checks the runner's name
    return options


def _flag(arg: str) -> str:
    return arg.partition("=")[0]
