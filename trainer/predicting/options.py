"""The options and the result of a prediction, for rows and for images."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import layout
from schemas.errors import MillraceError, UsageError, counted
from schemas.exports.notes import ExportOptions
from schemas.graphs.check import TRUST_HELP
from schemas.options import QUIET_HELP, VERBOSE_HELP, at_least, fraction, json_flag, option, positive_finite
from schemas.rejects import Reject
from trainer.predicting.output import STANDARD_OUTPUT

NOTHING_WRITTEN = "no predictions were written"

DEFAULT_OUTPUT = "predictions.jsonl"
_ELSEWHERE = (".parquet", ".tfrecord", ".tfrecords", ".gz")  # what is not written here
MOST_SHOWN = 10  # images, where --output says where to look for the others


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(ExportOptions):
    """The options of a prediction.

    Raises:
      UsageError: an option is out of its range.
    """

    inputs: tuple[str, ...] = option(
        "files or glob patterns: CSV files, plain or gzip'd; images; or CSV files of image pairs",
        name="--input",
        metavar="FILE",
    )
    output: str = option(
        "file for the predictions: CSV where its name ends in .csv, else JSON lines; - is standard output "
        f"(default: {DEFAULT_OUTPUT})",
        "",
        metavar="FILE",
    )
    rejects: str = option(
        "file for rejected rows or images (default: predictions.rejects.jsonl for predictions.jsonl, and for -)",
        "",
        metavar="FILE",
    )
    root: str | None = option(
        "folder that the paths in a CSV file of pairs are relative to (default: the CSV file's)", None, metavar="DIR"
    )
    quiet: bool = option(f"{QUIET_HELP}, and do not print the predictions on images", False)
    verbose: bool = option(VERBOSE_HELP, False)
    json: bool = json_flag()
    batch_size: int | None = option(
        "rows or images in a batch (default: 4096 rows, 64 images)", None, check=at_least(1)
    )
    max_rejects: int = option("number of rejects allowed (default: %(default)s)", 10, check=at_least(0))
    max_reject_fraction: float = option(
        "fraction of the input allowed to be rejects; above both limits the command fails (default: %(default)s)",
        0.001,
        metavar="F",
        check=fraction,
    )
    max_input_ratio: float = option(
        "fail if a gzip'd CSV file decompresses to more than this many times its size (a gzip bomb); "
        "the first 64 MB are exempt (default: %(default)g)",
        MAX_INPUT_RATIO,
        metavar="F",
        check=positive_finite,
    )
    overwrite: bool = option("replace existing output files", False)
    trust: bool = option(TRUST_HELP, False)
    most_shown: int | None = dataclasses.field(init=False, default=None)  # of the lines on images; None: all

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "most_shown", MOST_SHOWN if self.output else None)
        object.__setattr__(self, "output", self.output or DEFAULT_OUTPUT)
        if not self.rejects:
            name = DEFAULT_OUTPUT if self.printed else self.output
            name = name.removesuffix(".jsonl").removesuffix(".csv")
            object.__setattr__(self, "rejects", f"{name}.rejects.jsonl")  # next to them
        if self.output.endswith(_ELSEWHERE):
            raise UsageError(
                f"--output {self.output}: predict writes CSV (.csv) and JSON lines; for Parquet and TFRecords use "
                "millrace batch-predict --format"
            )
        if self.json and self.printed:
            raise UsageError(f"--json and --output {STANDARD_OUTPUT}: both print on standard output; give one of them")
        if self.rejects == STANDARD_OUTPUT:
            raise UsageError("--rejects -: only --output can be standard output; give a file")

    @property
    def as_csv(self) -> bool:
        """Whether predictions are written as CSV, and not as JSON lines."""
        return self.output.endswith(".csv")

    @property
    def printed(self) -> bool:
        """Whether predictions go to standard output."""
        return self.output == STANDARD_OUTPUT

    @property
    def after_failure(self) -> str:
        """What happened to the predictions made before a failure, for its message."""
        return "only part of the predictions was printed" if self.printed else NOTHING_WRITTEN

    def check_outputs(self, inputs: Sequence[str]) -> None:
        """Checks that the output files can be written.

        Raises:
          UsageError: an output is also an input, exists and there is no --overwrite, or is not a file.
        """
        written = [path for path in (self.output, self.rejects) if path != STANDARD_OUTPUT]
        for path in written:
            storage.check_output(path, hint=f", or give --output {STANDARD_OUTPUT} for standard output")
        if len({storage.identity(path) for path in written}) < len(written):
            raise UsageError(f"--rejects {self.rejects} and --output {self.output} are the same file")
        existing = [path for path in written if storage.exists(path)]
        read = {storage.identity(path) for path in inputs} if existing else set()
        for path in existing:
            if storage.identity(path) in read:
                raise UsageError(f"{path}: is both an input and an output")
            storage.check_output(path, overwrite=self.overwrite)
        for path, flag in ((self.output, "--output"), (self.rejects, "--rejects")):
            if path != STANDARD_OUTPUT:
                storage.check_apart(self.inputs, path, flag=flag)
                layout.check_outside(path, f"{flag} ", layout.MANIFEST)


@dataclasses.dataclass(frozen=True)
class PredictedPart:
    """The result for a part of the input: read = predicted + rejects.

    Attributes:
      read: the number of rows or images.
      predicted: how many of them have a prediction.
      lines: the predictions as lines of the output file.
      rejects: the rows or images without a prediction.
      shown: the predictions as text to be printed.
      done: about which share of the input ends with this part, from 0 to 1; 0: not known.
      unknown: by feature, how many predicted rows have a value that the model does not know.
    """

    read: int
    predicted: int
    lines: str
    rejects: list[Reject]
    shown: str = ""
    done: float = 0.0
    unknown: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class PredictionCounts:
    """The counts for the complete input: read = predicted + rejected, in `unit`."""

    unit: str = "rows"
    read: int = 0
    predicted: int = 0
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unknown: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0  # of the predictions, without what comes before the first
    startup_seconds: float = 0.0
    notes: list[str] = dataclasses.field(default_factory=list)  # about values that the model does not know
    done: float = 0.0  # about which share of the input, from 0 to 1

    @property
    def rate(self) -> float:
        """How many are read and predicted per second."""
        return self.read / self.seconds if self.seconds else 0.0

    def add(self, part: PredictedPart) -> None:
        """Adds a part of the input."""
        self.read += part.read
        self.predicted += part.predicted
        self.done = max(self.done, min(part.done, 1.0))
        self.unknown.update(part.unknown)
        self.rejected.update(reject.reason for reject in part.rejects)

    def check(self, options: PredictOptions) -> None:
        """Checks the counts.

        Raises:
          MillraceError: the counts do not add up, the reject limit is exceeded, or nothing was predicted.
        """
        rejected = self.rejected.total()
        if self.read != self.predicted + rejected:
            raise MillraceError(
                f"{self.read:,} {self.unit} read, {self.predicted:,} predicted and {rejected:,} rejected"
            )
        if not self.read:
            raise MillraceError(f"{', '.join(options.inputs)}: the input contains no records; expected at least one")
        if self.predicted and rejected <= max(options.max_rejects, options.max_reject_fraction * self.read):
            return
        limits = f"--max_rejects {options.max_rejects} and --max_reject_fraction {options.max_reject_fraction:g}"
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.most_common())
        verdict, output_note, limit = f"more than {limits} allow", options.after_failure, ", or raise a limit"
        if not self.predicted:
            verdict, output_note, limit = "so there is nothing to write", NOTHING_WRITTEN, ""
        raise MillraceError(
            f"rejected {rejected:,} of {counted(self.read, self.unit)} ({reasons}), {verdict}. They are listed in "
            f"{options.rejects}; {output_note}. Fix the {self.unit}{limit}."
        )
