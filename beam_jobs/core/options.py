"""The options of the preprocessing job, parsed and checked before anything heavy is imported."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import UsageError
from schemas.graphs.trust import TRUST_HELP

_USAGE = """%(prog)s --schema FILE --input PATTERN [PATTERN ...] --output DIR [option ...]
       %(prog)s --replay JSONL [JSONL ...] --append_to DIR [--runner NAME] [--quiet] [--trust]"""

_DESCRIPTION = """\
Turns raw CSV files or images into a dataset directory: sharded, shuffled TFRecords for train, eval and test, and the
preprocessing that made them as a TensorFlow graph. Statistics come from the train split alone. Every record is
either written or rejected with a reason, and nothing counts as a dataset until all of it is there.
"""

_EPILOG = """\
examples:
  python -m beam_jobs.preprocess --schema schemas/covertype.yaml --input covtype.data --output out/
  python -m beam_jobs.preprocess --schema my.yaml --input 'raw/*.csv' 'more/*.csv.gz' --output out/ --overwrite
  python -m beam_jobs.preprocess --schema my.yaml --input 'gs://bucket/raw/*.csv' --output gs://bucket/out \\
      --runner DataflowRunner --project P --region R --temp_location gs://bucket/tmp --setup_file ./setup.py
  python -m beam_jobs.preprocess --replay corrected.jsonl --append_to out/

Every other option is Apache Beam's own and is passed to its runner.
Exit status: 0 the dataset is written (or a replay found nothing left to try), 1 the job failed and wrote none,
2 it was asked wrongly and did not begin, 130 interrupted.
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
    """What one job is asked to do."""

    schema: str
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
            raise UsageError(f"--runner {self.runner}: no such runner{hint}; there are {', '.join(RUNNERS)}")
        if self.preprocessing_fn and ":" not in self.preprocessing_fn:
            raise UsageError(f"--preprocessing_fn {self.preprocessing_fn}: must be package.module:function")
        if self.preprocessing_fn and self.transform_from:
            raise UsageError("--preprocessing_fn and --transform_from: give one; the other dataset has its transform")

    @property
    def is_local(self) -> bool:
        """Whether Beam's in-process runner does the work."""
        return self.runner in ("FnApiRunner", "DirectRunner")


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that `main` alone decides on exit codes."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}\nSee {self.prog} --help.")


def parser(*, replay: bool = False) -> argparse.ArgumentParser:
    """The command line's parser: of a job from raw files, or of a replay, which must name other things."""
    p = _Parser(
        prog="python -m beam_jobs.preprocess",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    must = p.add_argument_group("what to do")
    must.add_argument(
        "--schema", required=not replay, metavar="FILE", help="the dataset's YAML file; see docs/schema.md"
    )
    must.add_argument(
        "--input",
        required=not replay,
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="files or globs, local or gs://, gzip'd or not",
    )
    must.add_argument(
        "--output", required=not replay, metavar="DIR", help="the dataset directory to write, local or gs://"
    )
    must.add_argument(
        "--overwrite", action="store_true", help="replace the dataset that is there (once the new one is whole)"
    )
    must.add_argument(
        "--transform_from",
        metavar="DIR",
        help="apply that dataset's transform to new files instead of measuring a new one",
    )
    must.add_argument(
        "--preprocessing_fn",
        metavar="MODULE:FUNCTION",
        help="a tf.Transform preprocessing_fn of your own instead of the schema's",
    )
    again = p.add_argument_group(
        "or to do again",
        "Corrected rejects go through the dataset's own schema and transform,\n"
        "into a new run beside the old shards; see docs/rejects.md.",
    )
    again.add_argument(
        "--replay",
        required=replay,
        nargs="+",
        action="extend",
        metavar="JSONL",
        help="lines of rejects-*.jsonl with `raw` (or `raw_base64`) corrected; of images, the file itself is mended",
    )
    again.add_argument("--append_to", required=replay, metavar="DIR", help="the dataset directory that rejected them")
    shape = p.add_argument_group("how it is written")
    size = shape.add_mutually_exclusive_group()
    size.add_argument(
        "--num_shards", type=int, metavar="N", help="files for the train split; the others get their share"
    )
    size.add_argument(
        "--shard_size_mb",
        type=float,
        default=64.0,
        metavar="MB",
        help="aim at files of this size (default: %(default)g)",
    )
    shape.add_argument(
        "--compression", choices=("none", "gzip"), default="none", help="of the shards (default: %(default)s)"
    )
    shape.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the shuffle (default: %(default)s); splits do not depend on it",
    )
    care = p.add_argument_group(
        "bad records", "The job fails, and keeps the rejects, when more are rejected than both limits allow."
    )
    care.add_argument(
        "--max_rejects", type=int, default=10, metavar="N", help="this many are accepted (default: %(default)s)"
    )
    care.add_argument(
        "--max_reject_fraction",
        type=float,
        default=0.001,
        metavar="F",
        help="or this share of all (default: %(default)s)",
    )
    care.add_argument(
        "--max_input_ratio",
        type=float,
        default=MAX_INPUT_RATIO,
        metavar="F",
        help="a gzip'd CSV file that decompresses to more than this many times its size fails the job, as a gzip bomb; "
        "the first 64 MB are free (default: %(default)g)",
    )
    run = p.add_argument_group("where it runs")
    run.add_argument(
        "--runner",
        default="FnApiRunner",
        metavar="NAME",
        help="FnApiRunner, Beam's in-process runner, which DirectRunner also means here (default); "
        "or DataflowRunner, FlinkRunner, PrismRunner",
    )
    run.add_argument(
        "--range_mb",
        type=float,
        default=8.0,
        metavar="MB",
        help="how much of a file is read at a time (default: %(default)g)",
    )
    run.add_argument("--quiet", action="store_true", help="no progress display")
    run.add_argument("--trust", action="store_true", help=f"of --transform_from and --append_to: {TRUST_HELP}")
    return p


def parse(argv: Sequence[str]) -> JobOptions:
    """Parses the command line of a job from raw files.

    Raises:
      UsageError: an option is missing, misspelt or out of its range.
    """
    values, beam_args = parse_known(argv)
    own = {name: value for name, value in values.items() if name not in REPLAY}
    own["input"] = tuple(own["input"])
    return JobOptions(**own, beam_args=beam_args)


def parse_known(argv: Sequence[str], *, replay: bool = False) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of this command's options, and the arguments that are Beam's.

    Raises:
      UsageError: an option is missing or misspelt.
    """
    known, rest = parser(replay=replay).parse_known_args(list(argv))
    own = [f"--{name}" for name in vars(known)]
    for flag in (arg.split("=")[0] for arg in rest):
        if not flag.startswith("--"):
            continue
        if _SECRET.search(flag):
            raise UsageError(
                f"{flag}: secrets are not taken on the command line: pipeline options are shown in process lists, logs "
                "and the runner's console. Give credentials the way their library reads them from the environment."
            )
        near = difflib.get_close_matches(flag.replace("-", "_").replace("__", "--", 1), own, n=1, cutoff=0.85)
        if near:
            raise UsageError(f"{flag}: no such option; did you mean {near[0]}?")
    return vars(known), tuple(rest)
