"""Joins labels that came later to the requests that a server has stored, for preprocessing.

    millrace label --store store/ --join labels.csv --on parcel --output labelled/

The labels are CSV files with a header: the column of --on, and that of the label, under the name that it has in the raw
files. --on is a column of the requests, or _id, the request's id. Each run writes one more file into --output, with the
rows that have no label yet; run it again whenever there are more labels. Columns that the schema reads and requests do
not have, such as a weight, are taken from the labels, too.

Of images, --output gets a folder for each class, and the labels have the columns _id and label; of pairs _id, left and
right: whom each image shows.

Without --join, the raw values of all requests are written to --output, for example for `millrace compare`.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import os
import sys

from schemas import command, storage
from schemas.display import ReadingDisplay
from schemas.errors import UsageError, counted
from schemas.interrupts import interruptible
from schemas.options import QUIET_HELP, Options, option

PROG = "millrace label"
_LINES = {
    "stored": "requests in the store",
    "written": "rows labelled now",
    "before": "rows labelled earlier",
    "unlabelled": "rows without a label yet",
    "not_predicted": "rows with a label but no prediction, left out: preprocessing rejects such rows",
    "contradicted": "rows with an earlier label that differs from the one given now",
    "conflicting": "rows waiting, with labels that differ",
    "not_writable": "rows left out: a value holds a line end, and the schema has no csv: {quoted_newlines: true}",
    "duplicate_labels": "labels known already",
    "conflicting_keys": "keys with labels that differ",
    "unmatched_labels": "keys of labels without a request",
    "invalid_labels": "labels left out, of rows that preprocessing would reject:",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions(Options):
    """What is joined."""

    store: str = option("the stored requests: the --store of a server", metavar="DIR")
    join: tuple[str, ...] = option(
        "CSV files with labels (default: write the requests without labels)", (), metavar="FILE"
    )
    on: str | None = option(
        "column that says which request a label is of (default: _id, or the key)", None, metavar="COLUMN"
    )
    output: str = option("the file of labelled rows, or a folder that gets one more file with each run", metavar="PATH")
    quiet: bool = option(QUIET_HELP, False)

    def __post_init__(self) -> None:
        for path in (self.store, self.output):
            if not storage.is_local(path):
                raise UsageError(f"{path}: must be on local disk")


def _run(options: LabelOptions, prog: str) -> command.Report:
    from millrace.label.joining import join_labels, write_requests

    with (
        ReadingDisplay(quiet=options.quiet, what="rows") as display,
        command.when_interrupted("run the command again"),
        interruptible(sigterm=True),
    ):
        if not options.join:
            rows = write_requests(options.store, options.output)
            text = f"{counted(rows, 'requests', '9,')} in {options.output}"
            return command.Report(text, {"stored": rows, "file": os.path.abspath(options.output)})
        joined = join_labels(options.store, options.join, on=options.on, output=options.output, reading=display)
    counts = {name: joined.counts.get(name, 0) for name in ("labels", *_LINES)}
    lines = []
    for name, text in _LINES.items():
        if counts[name] or name in ("stored", "written"):
            noun, rest = text.split(" ", 1)
            lines.append(f"{counted(counts[name], noun, '9,')} {rest}")
    lines += [f"{'':>9} {example}" for example in joined.examples]
    if (more := counts["invalid_labels"] - len(joined.examples)) > 0:
        lines.append(f"{'':>9} and {more:,} more")
    lines.append(f"labelled  {joined.file or 'nothing new'}")
    return command.Report("\n".join(lines), {"file": joined.file, **counts, "examples": joined.examples})


COMMAND = command.Command(prog=PROG, options=LabelOptions, work=_run, description=__doc__ or "")
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
