"""Predicts on raw CSV rows or on image files with an exported model.

    python -m trainer.predict --saved_model model/export/best/1700000000 --input 'raw/*.csv' --output predictions.jsonl
    python -m trainer.predict --saved_model model/export/best/1700000000 --input 'photos/*.jpg'

Rows are read as the preprocessing job reads them and go through the exported graph, in which the transform is. One JSON
line a row, by file name and then in the order of the file: where the row stands (source, offset in bytes, row counted
from 0), its key where the schema has one, and the class under its own name with the probabilities of all classes, or a
regression's value. Files may be larger than memory. The label's column may be there or not; it is not read.

Images go as they are into the exported graph. One line an image: its path, its class, and the five most probable
classes; the same is printed. A model of pairs takes CSV files of two paths a line, relative to the file's own folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import MillraceError
from schemas.graphs.trust import TRUST_HELP
from schemas.spec.table import Schema
from trainer.export.saved_model import ServedModel, read_notes
from trainer.loop.signals import how_ended, interruptible
from trainer.predicting.atomic_file import STANDARD_OUTPUT, written_aside
from trainer.predicting.options import PredictOptions, Summary
from trainer.verbosity import start_tensorflow

DEFAULT_OUTPUT = "predictions.jsonl"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    description, command, rest = (__doc__ or "").split("\n\n", 2)
    result = argparse.ArgumentParser(
        prog="python -m trainer.predict",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{description}\n\n{command}\n\n{rest}",
        epilog="Exit code: 0 done, 1 failed, 2 asked wrongly, 130 interrupted, 143 terminated. A failed run leaves no "
        "predictions behind, but for what it has printed by then with --output -.",
    )
    result.add_argument("--saved_model", required=True, help="the exported model, such as model/export/best/1700000000")
    result.add_argument(
        "--input",
        required=True,
        nargs="+",
        action="extend",
        help="files or globs: CSV, plain or gzip'd; images; or CSV files of pairs of images",
    )
    result.add_argument(
        "--output",
        default=DEFAULT_OUTPUT,
        help="where to write the predictions, JSON lines; - is standard output; default: %(default)s",
    )
    result.add_argument(
        "--rejects",
        help="where to write what cannot be read; default: predictions.rejects.jsonl for predictions.jsonl, and for -",
    )
    result.add_argument("--root", help="the folder that the paths in a CSV file of pairs are under; default: its own")
    result.add_argument("--quiet", action="store_true", help="write the predictions on images and do not print them")
    result.add_argument(
        "--signature",
        choices=("predict", "examples"),
        default="predict",
        help="send raw features by name, or serialized tf.Examples; default: predict",
    )
    result.add_argument("--batch_size", type=int, help="rows or images a batch; default: 4096 rows, 64 images")
    result.add_argument(
        "--max_rejects", type=int, default=10, help="so many rejects are no failure; default: %(default)s"
    )
    result.add_argument(
        "--max_reject_fraction", type=float, default=0.001, help="nor is this share of the input; default: %(default)s"
    )
    result.add_argument(
        "--max_input_ratio",
        type=float,
        default=MAX_INPUT_RATIO,
        help="a gzip'd CSV file that decompresses to more than this many times its size, and to more than 64 MB, is "
        "refused as a gzip bomb; default: %(default)g",
    )
    result.add_argument("--overwrite", action="store_true", help="replace an output that exists")
    result.add_argument("--trust", action="store_true", help=TRUST_HELP)
    return result


class Progress:
    """How many and how many a second: in place on a terminal, a line every ten seconds elsewhere.

    A terminal that predictions are printed on tells by itself how far things are.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self.silent = False
        self._unread = False
        self._shown = time.monotonic()

    def __call__(self, summary: Summary) -> None:
        now = time.monotonic()
        if self.silent or now - self._shown < (0.5 if self._terminal else 10):
            return
        self._shown = now
        line = f"{summary.read:,} {summary.unit}, {summary.rate:,.0f} {summary.unit}/s"
        sys.stderr.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()

    def show(self, text: str) -> None:
        """Prints predictions, as long as somebody reads them: they are in the file as well."""
        if text and not self._unread:
            self.silent = self.silent or sys.stdout.isatty()
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
            except BrokenPipeError:
                self._unread = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is in the buffer, and the summary

    def end(self) -> None:
        """Clears the line."""
        if self._terminal and not self.silent:
            sys.stderr.write("\r\x1b[K")


def predict(
    options: PredictOptions,
    *,
    progress: Callable[[Summary], None] = lambda summary: None,
    show: Callable[[str], None] = lambda text: None,
) -> Summary:
    """Writes a prediction for every row or image.

    Args:
      options: what to predict on.
      progress: is called after each batch.
      show: is given what is to be printed of it.

    Raises:
      UsageError: no such model or input, an output that exists, a file that does not fit the model's schema.
      MillraceError: more rejects than the options stand for (the rejects are written, the predictions are not).
    """
    schema, notes = read_notes(options.saved_model)
    if notes.advice is not None:
        print(f"note: {options.saved_model}: {notes.advice}", file=sys.stderr)
    paths = storage.expand(options.inputs)
    options.check_outputs(paths)
    if isinstance(schema, Schema):
        from trainer.predicting.rows import open_rows

        predicted = open_rows(options, paths, schema, notes)
    else:
        from trainer.predicting.images import open_images

        predicted = open_images(options, paths, schema, notes)
    summary = Summary(schema.records)
    start_tensorflow(verbose=False)
    with (
        ServedModel(options.saved_model, trust=options.trust) as model,
        written_aside(options.rejects) as rejects,
        written_aside(options.output) as output,
    ):
        begun = time.monotonic()
        for outcome in predicted(model):
            for reject in outcome.rejects:
                rejects.write(f"{reject.to_json()}\n")
            output.write(outcome.lines)
            summary.add(outcome)
            summary.seconds = time.monotonic() - begun
            show(outcome.shown)
            progress(summary)
        rejects.commit()
        summary.check(options)
        output.commit()
    return summary


def main(argv: list[str] | None = None) -> int:
    """Parses, predicts, prints a summary, and returns the exit code."""
    given = parser().parse_args(argv)
    progress = Progress()
    options = None
    try:
        options = PredictOptions(
            saved_model=given.saved_model.rstrip("/"),
            inputs=tuple(given.input),
            output=given.output,
            rejects=given.rejects or default_rejects(given.output),
            signature=given.signature,
            batch_size=given.batch_size,
            max_rejects=given.max_rejects,
            max_reject_fraction=given.max_reject_fraction,
            max_input_ratio=given.max_input_ratio,
            overwrite=given.overwrite,
            root=given.root,
            trust=given.trust,
        )
        quiet = given.quiet or options.printed
        with interruptible():
            summary = predict(options, progress=progress, show=(lambda text: None) if quiet else progress.show)
    except MillraceError as error:
        progress.end()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        progress.end()
        how, code = how_ended(error)
        print(f"{how}: {options.kept_on_failure if options else 'nothing was done'}", file=sys.stderr)
        return code
    progress.end()
    print("\n".join(told(summary, options)), file=sys.stderr if options.printed else sys.stdout)
    return 0


def default_rejects(output: str) -> str:
    """Where rejects go if nobody says: beside the predictions."""
    name = DEFAULT_OUTPUT if output == STANDARD_OUTPUT else output
    return f"{name.removesuffix('.jsonl')}.rejects.jsonl"


def told(summary: Summary, options: PredictOptions) -> list[str]:
    """What was done, for people."""
    unit = summary.unit
    return [
        f"read       {summary.read:,} {unit} in {summary.seconds:.1f} s ({summary.rate:,.0f} {unit}/s)",
        f"predicted  {summary.predicted:,}: {'standard output' if options.printed else options.output}",
        f"rejected   {summary.rejected.total():,}: {options.rejects}",
        *(f"           {count:,} {reason}" for reason, count in summary.rejected.most_common()),
    ]


if __name__ == "__main__":
    sys.exit(main())
