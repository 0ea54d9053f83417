"""The options and the result of a prediction, for rows and for images."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject
from trainer.predicting.atomic_file import STANDARD_OUTPUT

SIGNATURES = {"predict": "serving_default", "examples": "examples:serving_default"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The options of a prediction.

    Attributes:
      saved_model: an exported model's folder.
      inputs: files and globs: CSV files, plain or gzip'd; images; or CSV files with two image paths per line.
      output: the file for predictions as JSON lines, sorted by file name, rows in file order; '-' is standard output.
      rejects: the file for rejects as JSON lines.
      signature: 'predict' (raw features by name) or 'examples' (serialized `tf.Example`s).
      batch_size: rows or images per batch; None: 4,096 rows, 64 images.
      max_rejects: this many rejects are always allowed;
      max_reject_fraction: and up to this fraction of the input.
      max_input_ratio: how many times its size a gzip'd CSV file may decompress to.
      overwrite: replace existing output files.
      root: the folder that paths in a CSV file of pairs are relative to; None: the CSV file's folder.
      trust: load the model even if its graph can do more than compute.
      verbose: also show TensorFlow's log.

    Raises:
      UsageError: an option is out of its range.
    """

    saved_model: str
    inputs: tuple[str, ...]
    output: str
    rejects: str
    signature: str = "predict"
    batch_size: int | None = None
    max_rejects: int = 10
    max_reject_fraction: float = 0.001
    max_input_ratio: float = MAX_INPUT_RATIO
    overwrite: bool = False
    root: str | None = None
    trust: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.signature not in SIGNATURES:
            raise UsageError(f"--signature {self.signature}: must be one of {', '.join(SIGNATURES)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise UsageError(f"--batch_size {self.batch_size}: must be 1 or more")
        if self.max_rejects < 0 or not 0 <= self.max_reject_fraction <= 1:
            raise UsageError("--max_rejects must be 0 or more, --max_reject_fraction between 0 and 1")
        if self.rejects == STANDARD_OUTPUT:
            raise UsageError("--rejects -: only --output can be standard output; give a file")

    @property
    def printed(self) -> bool:
        """Whether predictions go to standard output."""
        return self.output == STANDARD_OUTPUT

    @property
    def kept_on_failure(self) -> str:
        """What happened to the predictions made before a failure, for its message."""
        return "only part of the predictions was printed" if self.printed else "no predictions were written"

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


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result for a part of the input: read = predicted + rejects.

    `lines` are JSON lines; `shown` is the same as text, if it is to be printed. `done` is about the share of the input
    that ends with this part, from 0 to 1; 0 where a part says nothing about it.
    """

    read: int
    predicted: int
    lines: str
    rejects: list[Reject]
    shown: str = ""
    done: float = 0.0


@dataclasses.dataclass
class Summary:
    """The counts for the complete input: read = predicted + rejected, in `unit`."""

    unit: str = "rows"
    read: int = 0
    predicted: int = 0
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0
    done: float = 0.0  # about which share of the input, from 0 to 1

    @property
    def rate(self) -> float:
        """How many are read and predicted per second."""
        return self.read / self.seconds if self.seconds else 0.0

    def add(self, outcome: Outcome) -> None:
        """Adds a part of the input."""
        self.read += outcome.read
        self.predicted += outcome.predicted
        self.done = max(self.done, min(outcome.done, 1.0))
        self.rejected.update(reject.reason for reject in outcome.rejects)

    def check(self, options: PredictOptions) -> None:
        """Checks the counts.

        Raises:
          MillraceError: the counts do not add up, or the reject limit is exceeded.
        """
        rejected = self.rejected.total()
        if self.read != self.predicted + rejected:
            raise MillraceError(
                f"{self.read:,} {self.unit} read, {self.predicted:,} predicted and {rejected:,} rejected"
            )
        if rejected > max(options.max_rejects, options.max_reject_fraction * self.read):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.most_common())
            raise MillraceError(
                f"{rejected:,} of {self.read:,} {self.unit} were rejected ({reasons}), more than --max_rejects "
                f"{options.max_rejects} and --max_reject_fraction {options.max_reject_fraction:g} allow. They are "
                f"listed in {options.rejects}; {options.kept_on_failure}. Fix the {self.unit}, or raise a limit."
            )
