"""Predicts on raw CSV rows or image files with an exported model.

    python -m trainer.predict --model_dir model/ --input 'raw/*.csv' --output predictions.jsonl
    python -m trainer.predict --saved_model model/export/best/1700000000 --input 'photos/*.jpg'

CSV rows: the output has one JSON line for each row, sorted by file name and in the order of the file, or one row of CSV
if its name ends in .csv. A line contains the row's position (source, offset in bytes, row counted from 0), its
key if the schema has one, and the class with the probabilities of all classes, or the value of a regression. Rows are
read as in the preprocessing job. The label's column is optional and is not read, nor are columns that the schema does
not declare. Files may be larger than memory.

Images: the output has one JSON line for each image, with its path, its class and the five most probable classes, which
are also printed: with --output those of the first ten. A model of pairs takes CSV files with two paths a line, relative
to the CSV file's folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from schemas import command, interrupts, storage
from schemas.display import Display
from schemas.errors import counted
from schemas.exports.model import ServedModel
from schemas.exports.notes import read_notes
from schemas.interrupts import how_ended, interruptible
from schemas.spec.table import Schema
from schemas.streams import print_result
from trainer.predicting.options import PredictionCounts, PredictOptions
from trainer.predicting.output import atomic_output
from trainer.start import start_tensorflow

PROG = "python -m trainer.predict"


class Progress(Display):
    """Shows the count, the rate, the share of the input, and how long the rest takes.

    Updated in place on a terminal, otherwise one line every ten seconds. Shows nothing while predictions are printed on
    the terminal, because they show the progress themselves.

    Args:
      quiet: show nothing.
      most: how many lines of predictions are printed; None: all.

    Attributes:
      unshown: how many lines were not.
    """

    def __init__(self, *, quiet: bool, most: int | None = None) -> None:
        super().__init__(quiet=quiet)
        self._left, self.unshown = most, 0
        self._unread = False
        self._shown = time.monotonic()

    def starting(self) -> None:
        """Says why nothing happens for a while."""
        self.line("starting TensorFlow")

    def __call__(self, summary: PredictionCounts) -> None:
        now = time.monotonic()
        if not summary.read or now - self._shown < self.every:
            return
        self._shown = now
        line = f"{summary.read:,} {summary.unit}, {summary.rate:,.0f} {summary.unit}/s, {100 * summary.done:.0f} %"
        left = summary.seconds * (1 - summary.done) / summary.done if summary.done > 0.02 else 0
        if left >= 1:
            line += f", about {command.duration(left)} left"
        self.update(line)

    def show(self, text: str) -> None:
        """Prints predictions, as many as are shown, as long as they can be printed; they are in the file as well."""
        if self._left is not None:
            lines = text.split("\n")[:-1]
            text = "".join(f"{line}\n" for line in lines[: self._left])
            self.unshown += max(0, len(lines) - self._left)
            self._left = max(0, self._left - len(lines))
        if text and not self._unread:
            self.close("\r\x1b[K")
            self._quiet = self._quiet or (self._left is None and sys.stdout.isatty())
            problem = print_result(text, end="")
            self._unread = problem is not None
            if problem:
                self.line(f"standard output: {problem}; no more predictions are shown, but all are in the file")


def predict(
    options: PredictOptions,
    *,
    progress: Callable[[PredictionCounts], None] = lambda summary: None,
    show: Callable[[str], None] = lambda text: None,
    starting: Callable[[], None] = lambda: None,
) -> PredictionCounts:
    """Writes a prediction for every row or image.

    Args:
      options: what to predict on.
      progress: called after each batch.
      show: called with the text to print for each batch.
      starting: called before TensorFlow is started, which takes seconds.

    Raises:
      UsageError: no such model or input, an output that exists, a file that does not fit the model's schema.
      MillraceError: more rejects than the options allow (the rejects are written, the predictions are not).
    """
    started = time.monotonic()
    export = options.export
    schema, notes = read_notes(export)
    paths = storage.expand(options.inputs)
    options.check_outputs(paths)
    from schemas.exports.words import notes_of
    from trainer.predicting.inputs import open_inputs

    inputs = open_inputs(options, paths, schema, notes)
    summary = PredictionCounts(schema.records)
    starting()
    start_tensorflow(verbose=options.verbose)
    with (
        ServedModel(export, trust=options.trust) as model,
        atomic_output(options.rejects) as rejects,
        atomic_output(options.output) as output,
    ):
        begun = time.monotonic()
        summary.startup_seconds = begun - started
        for part in inputs.parts(model):
            interrupts.check()
            for reject in part.rejects:
                rejects.write(f"{reject.to_json()}\n")
            output.write(part.lines)
            summary.add(part)
            summary.seconds = time.monotonic() - begun
            show(part.shown)
            progress(summary)
        if summary.read:  # also where too many are rejected: the file says why
            rejects.commit()
        summary.check(options)
        output.commit()
    if isinstance(schema, Schema):
        summary.notes = notes_of(summary.unknown, summary.predicted, schema)
    return summary


def _run(options: PredictOptions, prog: str) -> command.Report:
    quiet = options.quiet or options.json or options.printed
    try:
        with interruptible(sigterm=True), Progress(quiet=options.quiet, most=options.most_shown) as progress:
            show = (lambda text: None) if quiet else progress.show
            summary = predict(options, progress=progress, show=show, starting=progress.starting)
    except KeyboardInterrupt as error:
        how, code = how_ended(error)
        raise interrupts.Interrupted(f"{how}: {options.after_failure}", code) from None
    lines = _lines(summary, options)
    if progress.unshown:
        files = f"{options.output} and {options.rejects}" if summary.rejected else options.output
        lines.insert(0, f"and {progress.unshown:,} more in {files}")
    text = "\n".join(lines)
    if options.printed:
        print(text, file=sys.stderr)
    data = {
        "output": options.output,
        "rejects": options.rejects,
        "unit": summary.unit,
        "read": summary.read,
        "predicted": summary.predicted,
        "rejected": summary.rejected.total(),
        "reasons": dict(summary.rejected.most_common()),
        "unknown": dict(summary.unknown),
        "seconds": summary.seconds,
        "startup_seconds": summary.startup_seconds,
    }
    return command.Report("" if options.printed else text, data)


def _lines(summary: PredictionCounts, options: PredictOptions) -> list[str]:
    """The summary, as lines of text."""
    unit = summary.unit
    return [
        f"read       {counted(summary.read, unit)}",
        f"predicted  {summary.predicted:,}: {'standard output' if options.printed else options.output}",
        f"rejected   {summary.rejected.total():,}: {options.rejects}",
        *(f"           {count:,} {reason}" for reason, count in summary.rejected.most_common()),
        *(f"note       {note}" for note in summary.notes),
        "time       " + command.rate(summary.read, unit, summary.seconds, startup=summary.startup_seconds),
    ]


COMMAND = command.Command(
    prog=PROG,
    options=PredictOptions,
    work=_run,
    description=__doc__ or "",
    epilog="Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.\n"
    "A failed run writes no predictions, except those that it has already printed with --output -.",
)
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
