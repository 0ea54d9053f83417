"""Joins labels that came later to the requests that a server has stored, for preprocessing.

    millrace label --store store/ --join labels.csv --on parcel --output labelled/

The labels are CSV files with a header: the column of --on, and that of the label, under the name that it has in the raw
files. --on is a column of the requests, or _id, the request's id. Each run writes one more file into --output, with the
rows that have no label yet; run it again whenever there are more labels. Columns that the schema reads and requests do
not have, such as a weight, are taken from the labels, too.

Of images, --output gets a folder for each class, and the labels have the columns _id and label; of pairs _id, left and
right: whom each image shows.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.store.options import LABELLED
from schemas import command
from schemas.interrupts import how_ended, interruptible
from schemas.reading_display import ReadingDisplay

if TYPE_CHECKING:
    from millrace.label.joining import Joined


PROG = "millrace label"
_TOLD = {
    "stored": "requests in the store",
    "written": "rows received their label",
    "before": "rows have received it earlier",
    "unlabelled": "rows have no label yet",
    "not_predicted": "rows with a label were given no prediction, and are left out: preprocessing would reject them",
    "contradicted": "rows have received another label earlier than the one they would receive now",
    "conflicting": "rows wait, since their labels differ",
    "not_writable": "rows are left out: a value holds a line end, and the schema has no csv: {quoted_newlines: true}",
    "duplicate_labels": "labels said again what was known",
    "conflicting_keys": "keys have labels that differ",
    "unmatched_labels": "keys of labels have no request",
    "invalid_labels": "labels are left out, since preprocessing would reject their rows:",
}


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    description, exit_codes = (__doc__ or "").replace(PROG, "%(prog)s").split("\n\nExit codes: ")
    result = command.Parser(prog=prog, description=description, epilog=f"Exit codes: {exit_codes}")
    add = result.add_argument
    add("--store", required=True, metavar="DIR", help="the stored requests: the --store of a server")
    add("--join", required=True, nargs="+", action="extend", metavar="FILE", help="CSV files with labels")
    add("--on", metavar="COLUMN", help="column that says which request a label is of (default: _id, or the key)")
    add("--output", required=True, metavar="DIR", help="folder for the labelled rows")
    add("--name", default=LABELLED, help="name of a new file there; {} is its number (default: %(default)s)")
    add("--quiet", action="store_true", help=command.QUIET_HELP)
    add("--json", action="store_true", help=command.JSON_HELP)
    return result


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses, joins, prints the counts, and returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    given = parser(prog).parse_args(argv)
    from millrace.label.joining import LabelOptions
    from millrace.label.rows import join_labels

    options = LabelOptions(store=given.store, join=tuple(given.join), on=given.on, output=given.output, name=given.name)
    display = ReadingDisplay(quiet=given.quiet, what="rows")
    try:
        with interruptible(sigterm=True):
            joined = join_labels(options, display)
    except KeyboardInterrupt as error:
        how, code = how_ended(error)
        raise command.Interrupted(f"{how}; run the command again", code) from None
    finally:
        display.end()
    return command.Report("\n".join(told(joined)), dataclasses.asdict(joined))


def told(joined: Joined) -> list[str]:
    """The counts, as lines of text."""
    counts = {name: getattr(joined, name) for name in _TOLD}
    lines = [f"{counts[name]:>9,} {_TOLD[name]}" for name in _TOLD if counts[name] or name in ("stored", "written")]
    lines += [f"{'':>9} {example}" for example in joined.examples]
    if joined.invalid_labels > len(joined.examples):
        lines.append(f"{'':>9} and {joined.invalid_labels - len(joined.examples):,} more")
    return [*lines, f"labelled  {joined.file}" if joined.file else "labelled  nothing new"]


if __name__ == "__main__":
    sys.exit(main())
