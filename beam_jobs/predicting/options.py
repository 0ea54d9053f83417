"""The options of bulk inference, parsed and checked before anything heavy is imported."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import get_args

from beam_jobs.core.reject_limit_flags import add_reject_limit_flags
from beam_jobs.core.runner_options import RunnerOptions, add_runner_flags, check_unknown
from schemas import command, storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from schemas.predictions.manifest import FormatName

PROG = "python -m beam_jobs.predict"
BATCH_ROWS = 4096
BATCH_IMAGES = 64
FORMATS: tuple[FormatName, ...] = get_args(FormatName)

_DESCRIPTION = """\
Predicts on raw CSV rows, images or pairs of images with an exported model, as a Beam job: sharded files of predictions.
Every record is either predicted, or rejected with a reason. The manifest is written last, so that the predictions are
there completely or not at all. The command `predict` writes one file, in one process.
"""

_EPILOG = """\
examples:
  %(prog)s --saved_model model/export/best/1700000000 --input 'raw/*.csv' --output predictions/
  %(prog)s --saved_model gs://bucket/model/export/best/1700000000 --input 'gs://bucket/raw/*.csv.gz' \\
      --output gs://bucket/predictions --format parquet --pass_through customer,region \\
      --runner DataflowRunner --project P --region R --temp_location gs://bucket/tmp

Other options are Apache Beam pipeline options and are passed to the runner. Only the manifest tells which files belong
to the predictions: DIR/manifest.json names them.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A job that fails or is interrupted commits nothing.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BulkOptions(RunnerOptions):
    """The options of one job.

    Attributes:
      saved_model: an exported model's folder, local, gs:// or s3://.
      input: files and globs.
      output: the folder to write.
      format: what the shards are.
      pass_through: columns of the input that the predictions carry, by their names in the files or in the schema.
      shard_size_mb: the size at which a shard ends.
      batch_size: rows or images per batch; None: 4,096 rows, 64 images.
      max_rejects: this many rejects are always allowed;
      max_reject_fraction: and up to this fraction of the input.
      max_input_ratio: how many times its size a gzip'd CSV file may decompress to.
      range_mb: the size of the pieces of files that a worker is given; None: 64 MB here, 16 MB on a cluster.
      root: the folder that paths in a CSV file of pairs are relative to; None: the CSV file's folder.
      overwrite: replace earlier predictions, once the new ones are complete.

    Raises:
      UsageError: an option is out of its range.
    """

    saved_model: str
    input: tuple[str, ...]
    output: str
    format: FormatName = "jsonl"
    pass_through: tuple[str, ...] = ()
    shard_size_mb: float = 256.0
    batch_size: int | None = None
    max_rejects: int = 10
    max_reject_fraction: float = 0.001
    max_input_ratio: float = MAX_INPUT_RATIO
    range_mb: float | None = None
    root: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("shard_size_mb", "range_mb", "max_input_ratio"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # so that NaN is refused, too
                raise UsageError(f"--{name} {value:g}: must be more than 0")
        if self.format not in FORMATS:
            raise UsageError(f"--format {self.format}: must be one of {', '.join(FORMATS)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise UsageError(f"--batch_size {self.batch_size}: must be 1 or more")
        if self.max_rejects < 0 or not 0 <= self.max_reject_fraction <= 1:
            raise UsageError("--max_rejects must be 0 or more, --max_reject_fraction from 0 to 1")
        twice = sorted({name for name in self.pass_through if self.pass_through.count(name) > 1})
        if twice or "" in self.pass_through:
            named = f"{twice[0]!r} is named twice" if twice else "a name is empty"
            raise UsageError(f"--pass_through {','.join(self.pass_through)}: {named}; expected names like a,b")
        for option, path in (("saved_model", self.saved_model), ("output", self.output)):
            storage.check_scheme(path, f"--{option} ")
        for path in self.input:
            storage.check_scheme(path, "--input ")

    @property
    def piece_mb(self) -> float:
        """The size of the pieces: small enough that a cluster's workers end together, large enough to keep one busy."""
        return self.range_mb or (64.0 if self.is_local else 16.0)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    p = command.Parser(
        prog=prog,
        usage="%(prog)s --saved_model DIR --input PATTERN [PATTERN ...] --output DIR [option ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    must = p.add_argument_group("input and output")
    must.add_argument(
        "--saved_model", required=True, metavar="DIR", help="the exported model, such as model/export/best/1700000000"
    )
    must.add_argument(
        "--input",
        required=True,
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="files or glob patterns, local, gs:// or s3://: CSV files, plain or gzip'd, with or without the label; "
        "images; or CSV files of image pairs",
    )
    must.add_argument(
        "--output", required=True, metavar="DIR", help="the folder to write: shards, rejects and manifest.json"
    )
    must.add_argument(
        "--overwrite", action="store_true", help="replace earlier predictions, once the new ones are complete"
    )
    must.add_argument(
        "--root",
        metavar="DIR",
        help="folder that the paths in a CSV file of pairs are relative to (default: the CSV file's)",
    )
    shape = p.add_argument_group("output format")
    shape.add_argument("--format", choices=FORMATS, default="jsonl", help="what the shards are (default: %(default)s)")
    shape.add_argument(
        "--pass_through",
        action="append",
        metavar="NAME,NAME",
        help="columns of the CSV files to write beside each prediction, as they stand in the file",
    )
    shape.add_argument(
        "--shard_size_mb",
        type=float,
        default=256.0,
        metavar="MB",
        help="size at which a shard ends and the next one begins (default: %(default)g)",
    )
    add_reject_limit_flags(p)
    run = p.add_argument_group("execution")
    run.add_argument(
        "--batch_size",
        type=int,
        metavar="N",
        help=f"rows or images that the model is given at once (default: {BATCH_ROWS:,} rows, {BATCH_IMAGES} images)",
    )
    run.add_argument(
        "--range_mb",
        type=float,
        metavar="MB",
        help="size of the pieces of files that a worker is given at once (default: 64 here, 16 on a cluster)",
    )
    add_runner_flags(run)
    run.add_argument("--json", action="store_true", help=command.JSON_HELP)
    run.add_argument("--trust", action="store_true", help=TRUST_HELP)
    return p


def parse(argv: Sequence[str], *, prog: str = PROG) -> BulkOptions:
    """Parses the command line.

    Raises:
      UsageError: an option is missing, misspelt or out of its range.
    """
    known, rest = parser(prog).parse_known_args(list(argv))
    values = vars(known)
    check_unknown(rest, values)
    values.pop("json")
    values["input"] = tuple(values["input"])
    names = ",".join(values["pass_through"] or ())
    values["pass_through"] = tuple(name.strip() for name in names.split(",")) if values["pass_through"] else ()
    values["saved_model"] = values["saved_model"].rstrip("/") or "/"
    return BulkOptions(**values, beam_args=tuple(rest))
