"""The options of the preprocessing job, parsed and checked before anything heavy is imported."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal

from schemas import command, storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import UsageError
from schemas.graphs.trust import TRUST_HELP

PROG = "python -m beam_jobs.preprocess"

_USAGE = """%(prog)s --schema FILE --input PATTERN [PATTERN ...] --output DIR [option ...]
       %(prog)s --replay JSONL [JSONL ...] --append_to DIR [--runner NAME] [--quiet] [--verbose] [--trust] [--json]"""

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
      --runner DataflowRunner --project P --region R --temp_location gs://bucket/tmp --setup_file ./setup.py
  %(prog)s --replay corrected.jsonl --append_to out/

Other options are Apache Beam pipeline options and are passed to the runner.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A job that fails or is interrupted commits nothing. A
replay that finds nothing left to replay exits with 0.
"""


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


REPLAY = ("replay", "append_to")  # the options that only a replay has
_SECRET = re.compile(r"secret|passw|token|credential|connection_string|access_key|private_key|api_key")


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The options of one job."""

    schema: str  # a file, or the name of a shipped schema
    input: tuple[str, ...]
    output: str
    runner: str = "FnApiRunner"
    num_shards: int | None = None
    shard_size_mb: float = 64.0
    compression: Literal["none", "gzip"] = "none"
    max_rejects: int = 10
    max_reject_fraction: float = 0.001
    seed: int = 0
    overwrite: bool = False
    preprocessing_fn: str | None = None
    transform_from: str | None = None
    range_mb: float = 8.0
    max_input_ratio: float = MAX_INPUT_RATIO
    quiet: bool = False
    verbose: bool = False
    trust: bool = False
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, low in (("num_shards", 1), ("max_rejects", 0), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise UsageError(f"--{name} {value}: must be {low} or more")
        for name in ("shard_size_mb", "range_mb", "max_input_ratio"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name} {getattr(self, name):g}: must be more than 0")
        for name, path in (
            *(("input", p) for p in self.input),
            ("output", self.output),
            ("transform_from", self.transform_from),
        ):
            if path is not None:
                storage.check_scheme(path, f"--{name} ")
        if not 0 <= self.max_reject_fraction <= 1:
            raise UsageError(f"--max_reject_fraction {self.max_reject_fraction:g}: must be from 0 to 1")
        if self.runner not in RUNNERS and "." not in self.runner:
            near = difflib.get_close_matches(self.runner, RUNNERS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--runner {self.runner}: unknown runner{hint}; choose from {', '.join(RUNNERS)}")
        if self.preprocessing_fn and ":" not in self.preprocessing_fn:
            raise UsageError(f"--preprocessing_fn {self.preprocessing_fn}: must be package.module:function")
        if self.preprocessing_fn and self.transform_from:
            raise UsageError(
                "--preprocessing_fn and --transform_from: give only one; --transform_from brings its own transform"
            )

    @property
    def is_local(self) -> bool:
        """Whether Beam's in-process runner does the work."""
        return self.runner in ("FnApiRunner", "DirectRunner")


def parser(*, replay: bool = False, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser: of a job from raw files, or of a replay, which must name other things."""
    p = command.Parser(
        prog=prog,
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    must = p.add_argument_group("input and output")
    must.add_argument(
        "--schema",
        required=not replay,
        metavar="FILE",
        help="the schema, a YAML file (see docs/schema.md), or the name of one that ships, such as covertype",
    )
    must.add_argument(
        "--input",
        required=not replay,
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="files or glob patterns, local or gs://; CSV files may be gzip'd",
    )
    must.add_argument(
        "--output", required=not replay, metavar="DIR", help="the dataset directory to write, local or gs://"
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
        "--preprocessing_fn",
        metavar="MODULE:FUNCTION",
        help="use your own tf.Transform preprocessing_fn instead of the schema's",
    )
    again = p.add_argument_group(
        "replay (instead of --schema, --input and --output)",
        "Adds corrected rejects to a dataset, with its own schema and transform, as a\n"
        "new run; the existing shards stay. See docs/rejects.md.",
    )
    again.add_argument(
        "--replay",
        required=replay,
        nargs="+",
        action="extend",
        metavar="JSONL",
        help="copied lines of rejects-*.jsonl, with `raw` (or `raw_base64`) corrected; for images, fix the image file",
    )
    again.add_argument("--append_to", required=replay, metavar="DIR", help="the dataset directory that rejected them")
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
    care = p.add_argument_group(
        "reject limit", "The job fails, and keeps the rejects, if their number exceeds both limits."
    )
    care.add_argument(
        "--max_rejects", type=int, default=10, metavar="N", help="number of rejects allowed (default: %(default)s)"
    )
    care.add_argument(
        "--max_reject_fraction",
        type=float,
        default=0.001,
        metavar="F",
        help="fraction of all records allowed to be rejects (default: %(default)s)",
    )
    care.add_argument(
        "--max_input_ratio",
        type=float,
        default=MAX_INPUT_RATIO,
        metavar="F",
        help="fail if a gzip'd CSV file decompresses to more than this many times its size (a gzip bomb); "
        "the first 64 MB are exempt (default: %(default)g)",
    )
    run = p.add_argument_group("execution")
    run.add_argument(
        "--runner",
        default="FnApiRunner",
        metavar="NAME",
        help="the Beam runner: FnApiRunner (in-process, default; DirectRunner means the same here), DataflowRunner, "
        "FlinkRunner, PrismRunner, SparkRunner, PortableRunner, or the dotted name of a class",
    )
    run.add_argument(
        "--range_mb",
        type=float,
        default=8.0,
        metavar="MB",
        help="size of the byte ranges that files are read in (default: %(default)g)",
    )
    run.add_argument("--quiet", action="store_true", help=command.QUIET_HELP)
    run.add_argument("--verbose", action="store_true", help=f"{command.VERBOSE_HELP}, and the Beam runner's")
    run.add_argument("--json", action="store_true", help=command.JSON_HELP)
    run.add_argument("--trust", action="store_true", help=f"of --transform_from and --append_to: {TRUST_HELP}")
    return p


def parse(argv: Sequence[str], *, prog: str = PROG) -> JobOptions:
    """Parses the command line of a job from raw files.

    Raises:
      UsageError: an option is missing, misspelt or out of its range.
    """
    values, beam_args = parse_known(argv, prog=prog)
    own = {name: value for name, value in values.items() if name not in (*REPLAY, "json")}
    own["input"] = tuple(own["input"])
    return JobOptions(**own, beam_args=beam_args)


def parse_known(
    argv: Sequence[str], *, replay: bool = False, prog: str = PROG
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of this command's options, and the arguments that are Beam's.

    Raises:
      UsageError: an option is missing or misspelt.
    """
    known, rest = parser(replay=replay, prog=prog).parse_known_args(list(argv))
    own = [f"--{name}" for name in vars(known)]
    for flag in (arg.split("=")[0] for arg in rest):
        if not flag.startswith("--"):
            continue
        if _SECRET.search(flag):
            raise UsageError(
                f"{flag}: do not pass secrets on the command line: pipeline options appear in process lists, logs and "
                "the runner's console. Provide credentials through the environment, as their library documents."
            )
        near = difflib.get_close_matches(flag.replace("-", "_").replace("__", "--", 1), own, n=1, cutoff=0.85)
        if near:
            raise UsageError(f"{flag}: unknown option; did you mean {near[0]}?")
    return vars(known), tuple(rest)
