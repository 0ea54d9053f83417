"""What to predict on and how, and what came of it: the same for rows and for images."""

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
    """What to predict on, with which model, and where to write.

    Attributes:
      saved_model: an exported model's folder.
      inputs: files and globs: CSV files, plain or gzip'd; images; or CSV files of two images' paths a line.
      output: the predictions, JSON lines, files sorted by name, rows in their file's order; '-' is standard output.
      rejects: what could not be read, JSON lines.
      signature: 'predict' (raw features by name) or 'examples' (serialized `tf.Example`s).
      batch_size: rows or images a batch; None: 4,096 rows, 64 images.
      max_rejects: how many rejects are stood for, whatever their share,
      max_reject_fraction: or what share of the input.
      overwrite: replace existing output files.
      max_input_ratio: how many times its size a gzip'd CSV file may decompress to.
      root: the folder that paths in a CSV file of pairs are relative to; None: the file's own.
      trust: load the model even if its graph can do more than compute.
      verbose: TensorFlow's own log as well.
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
        """Whether the predictions themselves go to standard output."""
        return self.output == STANDARD_OUTPUT

    @property
    def kept_on_failure(self) -> str:
        """What becomes of predictions that were made before a failure."""
        return "only part of the predictions was printed" if self.printed else "no predictions were written"

    def check_outputs(self, inputs: Sequence[str]) -> None:
        """Looks at where the files are to be put.

        Raises:
          UsageError: there is an input, or a file and no --overwrite, or what is no file at all.
        """
        written = [path for path in (self.output, self.rejects) if path != STANDARD_OUTPUT]
        for path in written:
            storage.check_output(path, hint=f", or give --output {STANDARD_OUTPUT} for standard output")
        if len({storage.identity(path) for path in written}) < len(written):
            raise UsageError(f"--rejects {self.rejects} and --output {self.output} are the same file")
        there = [path for path in written if storage.exists(path)]
        read = {storage.identity(path) for path in inputs} if there else set()
        for path in there:
            if storage.identity(path) in read:
                raise UsageError(f"{path}: is both an input and an output")
            if not self.overwrite:
                raise UsageError(f"{path}: exists already; give --overwrite to replace it")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a part of the input became: read = predicted + rejects.

    `lines` are JSON lines; `shown` is the same for people, where it is to be printed.
    """

    read: int
    predicted: int
    lines: str
    rejects: list[Reject]
    shown: str = ""


@dataclasses.dataclass
class Summary:
    """What became of the input: read = predicted + rejected, counted in `unit`."""

    unit: str = "rows"
    read: int = 0
    predicted: int = 0
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """So many a second, of the reading and predicting alone."""
        return self.read / self.seconds if self.seconds else 0.0

    def add(self, outcome: Outcome) -> None:
        """Counts a part."""
        self.read += outcome.read
        self.predicted += outcome.predicted
        self.rejected.update(reject.reason for reject in outcome.rejects)

    def check(self, options: PredictOptions) -> None:
        """Raises MillraceError where the numbers do not add up, or more was rejected than the options stand for."""
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
