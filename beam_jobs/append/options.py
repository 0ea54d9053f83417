"""The options of an append: new input into a dataset that is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from beam_jobs.core.options import APPEND, PROG, JobOptions, parse_known
from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import Dataset, layout
from schemas.errors import UsageError

_OF_JOB = (
    "runner",
    "num_shards",
    "shard_size_mb",
    "max_rejects",
    "max_reject_fraction",
    "max_input_ratio",
    "range_mb",
    "start_timeout",
    "quiet",
    "verbose",
    "trust",
    "shared_disk",
    "any_region",
)


@dataclasses.dataclass(frozen=True)
class AppendOptions:
    """What one append is asked to do. All else is the dataset's own: schema, transform, compression, seed."""

    append_to: str
    input: tuple[str, ...]
    skip_known: bool = False
    allow_drift: bool = False
    reanalyze: bool = False
    preprocessing_fn: str | None = None  # the dataset's own, for --reanalyze
    runner: str = "FnApiRunner"
    num_shards: int | None = None
    shard_size_mb: float = 64.0
    max_rejects: int = 10
    max_reject_fraction: float = 0.001
    max_input_ratio: float = MAX_INPUT_RATIO
    range_mb: float = 8.0
    start_timeout: float = 900.0
    quiet: bool = False
    verbose: bool = False
    trust: bool = False
    shared_disk: bool = False
    any_region: bool = False
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        storage.check_scheme(self.append_to, "--append_to ")
        self._job(schema="")  # checks the values
        if self.preprocessing_fn is not None and not self.reanalyze:
            raise UsageError(
                f"--preprocessing_fn {self.preprocessing_fn}: not with --append_to, which adds to a dataset with the "
                "transform that it has; only --reanalyze makes a new one"
            )

    def job(self, base: Dataset, *, statistics: bool) -> JobOptions:
        """The job that reads the new input. `statistics`: the dataset has some."""
        job = self._job(schema=layout.join(base.run_dir, layout.SCHEMA_YAML))
        manifest = base.manifest
        return dataclasses.replace(
            job,
            compression=manifest.compression,
            seed=manifest.seed,
            statistics=statistics,
            leakage=False,  # what was found is about the records that were measured
            transform_from=base.path,
        )

    def _job(self, *, schema: str) -> JobOptions:
        shared = {name: getattr(self, name) for name in _OF_JOB}
        return JobOptions(schema=schema, input=self.input, output=self.append_to, **shared, beam_args=self.beam_args)


def wants_append(argv: Sequence[str]) -> bool:
    """Whether a command line asks for an append. One that asks for a replay is no append."""
    return any(_flag(arg) in ("--append_to", "--skip_known", "--allow_drift", "--reanalyze") for arg in argv)


def parse_append(argv: Sequence[str], *, prog: str = PROG) -> AppendOptions:
    """Parses a command line that asks for an append.

    Raises:
      UsageError: an option is missing, misspelt, or belongs to a job that writes a dataset.
    """
    values, beam_args = parse_known(argv, mode="append", prog=prog)
    given = {_flag(arg) for arg in argv}
    names = {f"--no_{name}" if name in ("statistics", "leakage") else f"--{name}": name for name in values}
    own = (*APPEND, *_OF_JOB, "input", "json", "preprocessing_fn")
    for flag, name in names.items():
        if flag in given and name not in own:
            raise UsageError(
                f"{flag}: not with --append_to, which adds to a dataset with the schema, the transform, the "
                "compression and the seed that it was written with. To change these, write the dataset again with "
                "--output."
            )
    chosen = {name: values[name] for name in (*APPEND, *_OF_JOB, "preprocessing_fn")}
    return AppendOptions(input=tuple(values["input"]), **chosen, beam_args=beam_args)


def _flag(arg: str) -> str:
    return arg.partition("=")[0]
