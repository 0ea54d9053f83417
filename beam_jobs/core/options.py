"""The options of the preprocessing job, parsed and checked before anything heavy is imported."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from beam_jobs.core.reject_limit_flags import add_reject_limit_flags
from beam_jobs.core.runner_options import RunnerOptions, add_runner_flags, check_unknown
from schemas import command, storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from schemas.storage.paths import check_characters

PROG = "python -m beam_jobs.preprocess"

_USAGE = """%(prog)s --schema FILE --input PATTERN [PATTERN ...] --output DIR [option ...]
       %(prog)s --append_to DIR --input PATTERN [PATTERN ...] [--skip_known] [--reanalyze] [option ...]
       %(prog)s --replay JSONL [JSONL ...] --append_to DIR [--runner NAME] [--start_timeout SECONDS] [--quiet]
           [--verbose] [--trust] [--json]"""

_DESCRIPTION = """\
Preprocesses raw CSV files or images into a dataset directory: sharded, shuffled TFRecords for train, eval and test,
and the transform as a TensorFlow graph. Statistics are computed over the train split only. Every record is either
written, or rejected with a reason. The dataset appears only when it is complete.
"""

_EPILOG = """\
examples:
  %(prog)s --schema covertype --input covtype.data --output out/
  %(prog)s --schema my.yaml --input 'raw/*.csv' 'more/*.csv.gz' --output out/ --overwrite
  %(prog)s --schema my.yaml --input 'gs://bucket/raw/*.csv' --output gs://bucket/out \\
      --runner DataflowRunner --project P --region R --temp_location gs://bucket/tmp --no_wait
  %(prog)s --append_to out/ --input 'new/*.csv'
  %(prog)s --replay corrected.jsonl --append_to out/

Other options are Apache Beam pipeline options and are passed to the runner, such as --job_endpoint HOST:PORT and
--job_server_timeout SECONDS of PortableRunner. docs/dataflow.md has a worked example.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A job that fails or is interrupted commits nothing. A
replay that finds nothing left to replay, or an append whose files are all known, exits with 0.
"""


Mode = Literal["job", "append", "replay"]
# The options of each mode that an ordinary job does not have.
APPEND = ("append_to", "skip_known", "allow_drift", "reanalyze")
REPLAY = ("replay", "append_to")


@dataclasses.dataclass(frozen=True)
class JobOptions(RunnerOptions):
    """The options of one job."""

    schema: str  # a file, or the name of a shipped schema
    input: tuple[str, ...]
    output: str
    num_shards: int | None = None
    shard_size_mb: float = 64.0
    compression: Literal["none", "gzip"] = "none"
    max_rejects: int = 10
    max_reject_fraction: float = 0.001
    seed: int = 0
    statistics: bool = True
    leakage: bool = True
    overwrite: bool = False
    preprocessing_fn: str | None = None
    transform_from: str | None = None
    compare_to: str | None = None
    keep_analysis: bool = False
    range_mb: float = 8.0
    max_input_ratio: float = MAX_INPUT_RATIO

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in (("num_shards", 1), ("max_rejects", 0), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and not value >= low:  # so that NaN is refused, too
                raise UsageError(f"--{name} {value}: must be {low} or more")
        for name in ("shard_size_mb", "range_mb", "max_input_ratio"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name} {getattr(self, name):g}: must be more than 0")
        for name, path in (
            *(("input", p) for p in self.input),
            ("output", self.output),
            ("transform_from", self.transform_from),
            ("compare_to", self.compare_to),
        ):
            if path is not None:
                storage.check_scheme(path, f"--{name} ")
        check_characters(self.output, "--output ")
        if not 0 <= self.max_reject_fraction <= 1:
            raise UsageError(f"--max_reject_fraction {self.max_reject_fraction:g}: must be from 0 to 1")
        if self.preprocessing_fn and ":" not in self.preprocessing_fn:
            raise UsageError(f"--preprocessing_fn {self.preprocessing_fn}: must be package.module:function")
        if self.preprocessing_fn and self.transform_from:
            raise UsageError(
                "--preprocessing_fn and --transform_from: give only one; --transform_from brings its own transform"
            )
        if not self.is_local and not storage.tensorflow_reads(self.output):
            scheme = self.output.partition("://")[0]
            use = "gs://" if self.runner.endswith("DataflowRunner") else "a local folder or gs://"
            raise UsageError(
                f"{self.output}: TensorFlow cannot read or write {scheme}://, and writes the transform there "
                f"on {self.runner}; use {use}, or leave out --runner"
            )


def parser(*, mode: Mode = "job", prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser: of a job from raw files, of an append or of a replay, which must name other things."""
    p = command.Parser(
        prog=prog,
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    must = p.add_argument_group("input and output")
    must.add_argument(
        "--schema",
        required=mode == "job",
        metavar="FILE",
        help="the schema, a YAML file (see docs/schema.md), or the name of one that ships, such as covertype",
    )
    must.add_argument(
        "--input",
        required=mode != "replay",
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="files or glob patterns, local, gs:// or s3://; CSV files may be gzip'd",
    )
    must.add_argument(
        "--output",
        required=mode == "job",
        metavar="DIR",
        help="the dataset directory to write, local or gs://; with the default runner also s3://",
    )
    must.add_argument(
        "--overwrite", action="store_true", help="replace an existing dataset, once the new one is complete"
    )
    must.add_argument(
        "--transform_from",
        metavar="DIR",
        help="apply the transform of the dataset in DIR instead of computing a new one",
    )
    must.add_argument(
        "--keep_analysis",
        action="store_true",
        help="keep what the analysis measures, so that --reanalyze need not read these records again; see "
        "docs/append.md",
    )
    must.add_argument(
        "--compare_to",
        metavar="DIR",
        help="compare the new dataset with the one in DIR, instead of the one that it replaces, and fail if it has "
        "drifted further than the schema's thresholds allow; see docs/compare.md",
    )
    must.add_argument(
        "--preprocessing_fn",
        metavar="MODULE:FUNCTION",
        help="use your own tf.Transform preprocessing_fn instead of the schema's",
    )
    more = p.add_argument_group(
        "append (instead of --schema and --output)",
        "Adds new input to a dataset, with its own schema and transform, as a new run;\n"
        "the existing shards stay. See docs/append.md.",
    )
    more.add_argument(
        "--append_to", required=mode != "job", metavar="DIR", help="the dataset directory to add --input to"
    )
    more.add_argument(
        "--skip_known",
        action="store_true",
        help="leave out files whose content the dataset holds already, instead of refusing them",
    )
    more.add_argument(
        "--allow_drift",
        action="store_true",
        help="add records that have drifted beyond the thresholds in the schema that make a job fail",
    )
    more.add_argument(
        "--reanalyze",
        action="store_true",
        help="measure the transform anew, and write all records again; what earlier runs have measured is not read "
        "again if they kept it (--keep_analysis)",
    )
    again = p.add_argument_group(
        "replay (instead of --schema, --input and --output)",
        "Adds corrected rejects to the dataset in --append_to, with its own schema and\n"
        "transform, as a new run; the existing shards stay. See docs/rejects.md.",
    )
    again.add_argument(
        "--replay",
        required=mode == "replay",
        nargs="+",
        action="extend",
        metavar="JSONL",
        help="copied lines of rejects-*.jsonl, with `raw` (or `raw_base64`) corrected; for images, fix the image file",
    )
    shape = p.add_argument_group("output format")
    size = shape.add_mutually_exclusive_group()
    size.add_argument(
        "--num_shards", type=int, metavar="N", help="number of train shards; other splits get shards in proportion"
    )
    size.add_argument(
        "--shard_size_mb",
        type=float,
        default=64.0,
        metavar="MB",
        help="target size of a shard (default: %(default)g)",
    )
    shape.add_argument(
        "--compression",
        choices=("none", "gzip"),
        default="none",
        help="compression of the shards (default: %(default)s)",
    )
    shape.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the shuffle; splits do not depend on it (default: %(default)s)",
    )
    shape.add_argument(
        "--no_statistics",
        dest="statistics",
        action="store_false",
        help="do not collect statistics of the records; see docs/statistics.md",
    )
    shape.add_argument(
        "--no_leakage",
        dest="leakage",
        action="store_false",
        help="do not look for equal records in two splits, nor for features that tell the label; see docs/leakage.md",
    )
    add_reject_limit_flags(p)
    run = p.add_argument_group("execution")
    add_runner_flags(run)
    run.add_argument(
        "--no_wait",
        action="store_true",
        help="submit the job to the runner and return; the command `job` takes it up later. For DataflowRunner, and "
        "for PortableRunner with --job_endpoint and workers of their own",
    )
    run.add_argument(
        "--on_interrupt",
        choices=("ask", "cancel", "leave"),
        default="ask",
        help="what Ctrl-C does with a job on such a runner: ask whether to cancel it, cancel it, or leave it to "
        "the command `job` (default: %(default)s; without a terminal, ask means cancel)",
    )
    run.add_argument(
        "--range_mb",
        type=float,
        default=8.0,
        metavar="MB",
        help="size of the byte ranges that files are read in (default: %(default)g)",
    )
    run.add_argument("--json", action="store_true", help=command.JSON_HELP)
    run.add_argument("--trust", action="store_true", help=f"with --transform_from or --append_to: {TRUST_HELP}")
    return p


def parse(argv: Sequence[str], *, prog: str = PROG) -> JobOptions:
    """Parses the command line of a job from raw files.

    Raises:
      UsageError: an option is missing, misspelt or out of its range.
    """
    values, beam_args = parse_known(argv, prog=prog)
    own = {name: value for name, value in values.items() if name not in (*APPEND, *REPLAY, "json")}
    own["input"] = tuple(own["input"])
    return JobOptions(**own, beam_args=beam_args)


def parse_known(argv: Sequence[str], *, mode: Mode = "job", prog: str = PROG) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of this command's options, and the arguments that are Beam's.

    Raises:
      UsageError: an option is missing or misspelt.
    """
    known, rest = parser(mode=mode, prog=prog).parse_known_args(list(argv))
    check_unknown(rest, vars(known))
    return vars(known), tuple(rest)
