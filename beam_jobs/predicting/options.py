"""The options of bulk inference. They are parsed and checked before TensorFlow or Beam is imported."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from beam_jobs.core.options import EXECUTION, RejectLimits, RunnerOptions, check_unknown
from schemas.errors import UsageError
from schemas.exports.notes import ExportOptions
from schemas.graphs.check import TRUST_HELP
from schemas.options import Group, at_least, json_flag, only, option, positive, positive_finite
from schemas.predictions.manifest import FormatName
from schemas.storage import check_addresses

if TYPE_CHECKING:
    from cyclopts import App

PROG = "python -m beam_jobs.predict"
BATCH_ROWS = 4096
BATCH_IMAGES = 64

_DESCRIPTION = """\
Predicts on raw CSV rows, images or pairs of images with an exported model, as a Beam job: sharded files of predictions.
Every record is either predicted, or rejected with a reason. The manifest is written last, so that the predictions are
there completely or not at all. The command `predict` writes one file, in one process.
"""

_EPILOG = """\
examples:
  %(prog)s --model_dir model/ --input 'raw/*.csv' --output predictions/
  %(prog)s --saved_model gs://bucket/model/export/best/1700000000 --input 'gs://bucket/raw/*.csv.gz' \\
      --output gs://bucket/predictions --format parquet --pass_through customer,region \\
      --runner DataflowRunner --project P --region R --temp_location gs://bucket/tmp

Other options are Apache Beam pipeline options and are passed to the runner. Only the manifest tells which files belong
to the predictions: DIR/manifest.json names them.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A job that fails or is interrupted commits nothing.
"""

FILES, FORMAT = Group("input and output"), Group("output format")
_file = functools.partial(option, group=FILES)
_format = functools.partial(option, group=FORMAT)
_run = functools.partial(option, group=EXECUTION)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BulkOptions(ExportOptions, RejectLimits, RunnerOptions):
    """The options of one job.

    Raises:
      UsageError: an option is out of its range.
    """

    input: tuple[str, ...] = _file(
        "files or glob patterns, local or gs://: CSV files, plain or gzip'd, with or without the label; "
        "images; or CSV files of image pairs",
        metavar="PATTERN",
        check=check_addresses,
    )
    output: str = _file("the folder to write: shards, rejects and manifest.json", metavar="DIR", check=check_addresses)
    overwrite: bool = _file("replace earlier predictions, once the new ones are complete", False)
    root: str | None = _file(
        "folder that the paths in a CSV file of pairs are relative to (default: the CSV file's)", None, metavar="DIR"
    )
    format: FormatName = _format("what the shards are (default: %(default)s)", "jsonl")  # noqa: RUF009
    pass_through: tuple[str, ...] = _format(
        "columns of the CSV files to write beside each prediction, as they stand in the file",
        (),
        metavar="NAME,NAME",
    )
    shard_size_mb: float = _format(
        "size at which a shard ends and the next one begins (default: %(default)g)",
        256.0,
        metavar="MB",
        check=positive,
    )
    batch_size: int | None = _run(
        f"rows or images that the model is given at once (default: {BATCH_ROWS:,} rows, {BATCH_IMAGES} images)",
        None,
        check=at_least(1),
    )
    range_mb: float | None = _run(
        "size of the pieces of files that a worker is given at once (default: 64 here, 16 on a cluster)",
        None,
        metavar="MB",
        check=positive_finite,
    )
    json: ClassVar[bool] = json_flag(group=EXECUTION)
    trust: bool = _run(TRUST_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        twice = sorted({name for name in self.pass_through if self.pass_through.count(name) > 1})
        if twice or "" in self.pass_through:
            named = f"{twice[0]!r} is named twice" if twice else "a name is empty"
            raise UsageError(f"--pass_through {','.join(self.pass_through)}: {named}; expected names like a,b")

    @property
    def piece_mb(self) -> float:
        """The size in MB of the pieces of files that a worker gets at once.

        Small pieces let all workers of a cluster end at about the same time. Large pieces keep the threads of a worker
        busy.
        """
        return self.range_mb or (64.0 if self.is_local else 16.0)


def app(prog: str = PROG) -> App:
    """Returns the command for Cyclopts."""
    from schemas.arguments import add_flags, new_app

    result = new_app(prog, _DESCRIPTION, "%(prog)s --model_dir DIR --input PATTERN... --output DIR [OPTIONS]")
    add_flags(result, dict, (BulkOptions,))
    return result


def parse(argv: Sequence[str], *, prog: str = PROG) -> BulkOptions:
    """Parses the command line.

    Raises:
      UsageError: an option is missing, misspelt or out of its range.
    """
    from schemas.arguments import parse as parse_arguments

    values, rest = parse_arguments(app(prog), argv, epilog=_EPILOG, passes_on=True)
    check_unknown(rest, BulkOptions.__dataclass_fields__)
    if "pass_through" in values:
        values["pass_through"] = tuple(name.strip() for name in ",".join(values["pass_through"]).split(","))
    return BulkOptions(**only(values, BulkOptions), beam_args=tuple(rest))
