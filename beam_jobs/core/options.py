"""The options of jobs, parsed and checked before anything heavy is imported."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import OpenDataset, layout
from schemas.errors import UsageError, did_you_mean
from schemas.graphs.check import TRUST_HELP
from schemas.options import (
    QUIET_HELP,
    Group,
    Options,
    at_least,
    fraction,
    json_flag,
    only,
    option,
    positive,
    positive_finite,
)
from schemas.storage import check_addresses
from schemas.storage.gcs_access import check_characters

if TYPE_CHECKING:
    from cyclopts import App

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
    start_timeout: float = _run(
        "on Prism, Flink and Spark: cancel the job if no worker has begun to read by then; 0: wait without limit "
        "(default: %(default)g)",
        900.0,
        metavar="SECONDS",
        check=at_least(0),
    )
    quiet: bool = _run(QUIET_HELP, False)
    verbose: bool = _run("also show the logs of TensorFlow and the Beam runner", False)
    break_lease: bool = _run(
        "take the output's lease from a job on a cluster if it cannot be found out whether that job still runs; what "
        "it has written is thrown away",
        False,
    )
    no_wait: bool = False
    flex_template: bool = False  # set by `beam_jobs.flex_template` alone
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runner not in RUNNERS and "." not in self.runner:
            hint = did_you_mean(self.runner, RUNNERS)
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
        "submit the job to the runner and return; it commits by itself, and the command `job` tells how it is doing. "
        "For DataflowRunner, and for PortableRunner with --job_endpoint and workers of their own",
        False,
    )


@dataclasses.dataclass(frozen=True)
class RejectLimit:
    """How many rejects a job stands: `max(rows, fraction x read)`."""

    rows: int
    fraction: float

    def allows(self, rejected: int, read: int) -> bool:
        """Returns whether a finished job may commit."""
        return rejected <= max(self.rows, self.fraction * read)


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
        check=positive_finite,
    )

    @property
    def reject_limit(self) -> RejectLimit:
        """The limit of rejects."""
        return RejectLimit(self.max_rejects, self.max_reject_fraction)


def check_unknown(rest: Sequence[str], own: Iterable[str]) -> None:
    """Checks the arguments that are not a command's own, and so are Beam's.

    Args:
      rest: the arguments.
      own: the names of the command's options.

    Raises:
      UsageError: one of them holds a secret, is a misspelt option of the command, or follows none.
    """
    from schemas.arguments import unexpected

    flags = [f"--{name}" for name in own]
    if rest and not rest[0].startswith("-"):
        raise UsageError(unexpected(rest[0], flags))
    for flag in (arg.split("=")[0] for arg in rest if arg.startswith("-")):
        if _SECRET.search(flag):
            raise UsageError(
                f"{flag}: do not pass secrets on the command line: pipeline options appear in process lists, logs and "
                "the runner's console. Provide credentials through the environment, as their library documents."
            )
        problem = unexpected(flag, flags, cutoff=0.83)  # Beam has options with similar names
        if "did you mean" in problem:
            raise UsageError(problem)


PROG = "python -m beam_jobs.preprocess"

_USAGE = """%(prog)s --schema FILE --input PATTERN... --output DIR [OPTIONS]
       %(prog)s --append_to DIR --input PATTERN... [OPTIONS]
       %(prog)s --append_to DIR --replay JSONL... [OPTIONS]"""

_DESCRIPTION = """\
Preprocesses raw CSV files or images into a dataset directory: sharded, shuffled TFRecords for train, eval and test,
and the transform as a TensorFlow graph. Statistics are computed over the train split only. Every record is either
written, or rejected with a reason. The dataset appears only when it is complete.
"""

_EPILOG = """\
examples:
  %(prog)s --schema covertype --input covtype.data --output out/
  %(prog)s --schema my.yaml --input 'raw/*.csv' 'more/*.csv.gz' --output out/ --overwrite
  %(prog)s --schema my.yaml --input 'raw/*.csv' --output out/ --dry_run
  %(prog)s --schema my.yaml --input 'gs://bucket/raw/*.csv' --output gs://bucket/out \\
      --runner DataflowRunner --project P --region R --temp_location gs://bucket/tmp --no_wait
  %(prog)s --append_to out/ --input 'new/*.csv'
  %(prog)s --replay corrected.jsonl --append_to out/

Other options are Apache Beam pipeline options and are passed to the runner, such as --job_endpoint HOST:PORT and
--job_server_timeout SECONDS of PortableRunner. docs/dataflow.md has a worked example.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A job that fails or is interrupted commits nothing. A
replay that finds nothing left to replay, or an append whose files are all known, exits with 0.
"""

FILES = Group("input and output")
APPEND = Group(
    "append (instead of --schema and --output)",
    "Adds new input, or corrected rejects, to a dataset, with its own schema and\n"
    "transform, as a new run; the existing shards stay. See docs/append.md and\n"
    "docs/rejects.md.",
)
FORMAT = Group("output format")
_file = functools.partial(option, group=FILES)
_append = functools.partial(option, group=APPEND)
_format = functools.partial(option, group=FORMAT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteOptions(Options):
    """How many shards are written, and in which pieces files are read."""

    num_shards: int | None = _format(
        "number of train shards; other splits get shards in proportion", None, check=at_least(1)
    )
    shard_size_mb: float = _format("target size of a shard (default: %(default)g)", 64.0, metavar="MB", check=positive)
    range_mb: float = _run(
        "size of the byte ranges that files are read in (default: %(default)g)",
        8.0,
        metavar="MB",
        check=positive_finite,
    )
    workers: int | None = _run(
        "with the default runner: how many processes work on CSV files, this one among them (default: one for each "
        "core that it may use, at most 8 and what memory holds; 1 for less than 64 MB); see docs/scale.md",
        None,
        check=at_least(1),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_shards is not None and self.shard_size_mb != WriteOptions.shard_size_mb:
            raise UsageError(
                f"--num_shards {self.num_shards} and --shard_size_mb {self.shard_size_mb:g}: give one of them"
            )


@dataclasses.dataclass(frozen=True)
class JobOptions(WriteOptions, RejectLimits, WaitOptions):
    """The options of one job."""

    schema: str = _file(
        "the schema, a YAML file (see docs/schema.md), or the name of one that ships, such as covertype",
        metavar="FILE",
    )
    input: tuple[str, ...] = _file(
        "files or glob patterns, local or gs://; CSV files may be gzip'd",
        metavar="PATTERN",
        check=check_addresses,
    )
    output: str = _file(
        "the dataset directory to write, local or gs://",
        metavar="DIR",
        check=check_addresses,
    )
    overwrite: bool = _file("replace an existing dataset, once the new one is complete", False)
    dry_run: bool = _file(
        "write nothing: open the input, try the schema on a sample of it, and estimate rows, size and time; exit code "
        "1 if the job would be refused; see docs/dataset.md",
        False,
    )
    transform_from: str | None = _file(
        "apply the transform of the dataset in DIR instead of computing a new one",
        None,
        metavar="DIR",
        check=check_addresses,
    )
    compare_to: str | None = _file(
        "compare the new dataset with the one in DIR, instead of the one that it replaces, and fail if it has "
        "drifted further than the schema's thresholds allow; see docs/compare.md",
        None,
        metavar="DIR",
        check=check_addresses,
    )
    preprocessing_fn: str | None = _file(
        "use your own tf.Transform preprocessing_fn instead of the schema's", None, metavar="MODULE:FUNCTION"
    )
    compression: Literal["none", "gzip"] = _format("compression of the shards (default: %(default)s)", "none")
    seed: int = _format("seed of the shuffle; splits do not depend on it (default: %(default)s)", 0, check=at_least(0))
    statistics: bool = _format("collect statistics of the records, as is the default; see docs/statistics.md", True)
    leakage: bool = _format(
        "look for equal records in two splits, and for features that tell the label, as is the default; see "
        "docs/leakage.md",
        True,
    )
    json: ClassVar[bool] = json_flag(EXECUTION)
    trust: bool = _run(f"with --transform_from or --append_to: {TRUST_HELP}", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_characters(self.output, "--output ")
        if self.workers is not None and not self.is_local:
            raise UsageError(
                f"--workers {self.workers}: is for the default runner. On {self.runner}, an option of the runner's own "
                "says how many workers there are, such as --num_workers; leave this one out"
            )
        if self.preprocessing_fn and ":" not in self.preprocessing_fn:
            raise UsageError(f"--preprocessing_fn {self.preprocessing_fn}: must be package.module:function")
        if self.preprocessing_fn and self.transform_from:
            raise UsageError(
                "--preprocessing_fn and --transform_from: give only one; --transform_from brings its own transform"
            )


@dataclasses.dataclass(frozen=True)
class AppendOptions(WriteOptions, RejectLimits, RunnerOptions):
    """What one append is asked to do. All else is the dataset's own: schema, transform, compression, seed.

    Either `input` or `replay` must be given.
    """

    append_to: str = _append(
        "the dataset directory to add --input or --replay to", metavar="DIR", check=check_addresses
    )
    input: tuple[str, ...] = _file("new files or glob patterns", (), metavar="PATTERN", check=check_addresses)
    replay: tuple[str, ...] = _append(
        "instead of --input: copied lines of rejects-*.jsonl, with `raw` (or `raw_base64`) corrected; for images, fix "
        "the image file",
        (),
        metavar="JSONL",
    )
    skip_known: bool = _append(
        "leave out files whose content the dataset holds already, instead of refusing them", False
    )
    allow_drift: bool = _append(
        "add records that have drifted beyond the thresholds in the schema that make a job fail", False
    )
    trust: bool = _run(TRUST_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._job(schema="")  # checks the values
        if bool(self.input) == bool(self.replay):
            raise UsageError(
                f"--append_to {self.append_to}: found {'both' if self.input else 'neither'} of --input, for new input, "
                "and --replay, for corrected rejects; give one of them"
            )
        for name in ("skip_known", "allow_drift", "max_rejects", "max_reject_fraction") if self.replay else ():
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                raise UsageError(f"--{name}: not with --replay: what is still wrong stays rejected; leave it out")

    def job(self, base: OpenDataset, *, statistics: bool) -> JobOptions:
        """Returns the job that reads the new input. `statistics`: the dataset has some."""
        manifest = base.manifest
        return dataclasses.replace(
            self._job(schema=layout.join(base.run_dir, layout.SCHEMA_YAML)),
            compression=manifest.compression,
            seed=manifest.seed,
            statistics=statistics,
            leakage=False,  # what was found is about the records that were measured
            transform_from=base.path,
        )

    def _job(self, *, schema: str) -> JobOptions:
        return JobOptions(schema=schema, output=self.append_to, **only(vars(self), JobOptions))


Asked = TypeVar("Asked", bound=RunnerOptions)
PARTS: tuple[type[Any], ...] = (JobOptions, AppendOptions)
_REFUSED = (
    "not with --append_to, which adds to a dataset with the schema, the transform, the compression and the seed that "
    "it was written with. To change these, write the dataset again with --output and --overwrite."
)


def kind_of(argv: Sequence[str]) -> type[JobOptions] | type[AppendOptions]:
    """Returns the options that a command line asks for."""
    flags = {arg.partition("=")[0].replace("-", "_") for arg in argv}
    return AppendOptions if flags & {"__append_to", "__replay", "__skip_known", "__allow_drift"} else JobOptions


def app(prog: str = PROG, kind: type[Any] = JobOptions) -> App:
    """Returns the command for Cyclopts: a job from raw files or an append, which must name other things."""
    from schemas.arguments import add_flags, new_app

    result = new_app(prog, _DESCRIPTION, _USAGE)
    add_flags(result, dict, (kind, *PARTS))
    return result


def parse(argv: Sequence[str], *, prog: str = PROG) -> JobOptions:
    """Parses the command line of a job from raw files; as `parse_as`."""
    return parse_as(JobOptions, argv, prog=prog)


def parse_as(kind: type[Asked], argv: Sequence[str], *, prog: str = PROG) -> Asked:
    """Parses a command line.

    Raises:
      UsageError: an option is missing, misspelt, out of its range, or belongs to another kind of job.
    """
    from schemas.arguments import parse as parse_arguments

    values, rest = parse_arguments(app(prog, kind), argv, epilog=_EPILOG, passes_on=True)
    check_unknown(rest, {name for part in PARTS for name in part.__dataclass_fields__})
    if kind is AppendOptions and "dry_run" in values:
        raise UsageError("--dry_run: tries a job with --schema and --output; leave it out")
    for name in values if kind is AppendOptions else ():
        field = AppendOptions.__dataclass_fields__.get(name)
        if name != "json" and (field is None or not field.metadata):
            raise UsageError(f"--{'no_' if values[name] is False else ''}{name}: {_REFUSED}")
    return kind(**only(values, kind), beam_args=tuple(rest))
