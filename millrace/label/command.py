"""Joins labels that came later to the requests that a server has stored, for preprocessing.

    millrace label store/ labels.csv --output labelled.csv

Labels are CSV files with a header: the label, under the name that it has in the raw files, and the schema's key or _id,
the request's id. Each run writes the rows that have no label yet into a new file; run it again with another --output
whenever there are more labels. Columns that the schema reads and requests do not have, such as a weight, are taken from
the labels, too.

Of images, --output is a folder that gets a folder for each class, and the labels have the columns _id and label; of
pairs _id, left and right: whom each image shows.

Without labels, the raw values of all requests are written, for example for `millrace compare`.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import os
import sys

from schemas import command, storage
from schemas.errors import UsageError, counted
from schemas.interrupts import interruptible
from schemas.options import Options, option

PROG = "millrace label"
_LINES = {
    "stored": "requests in the store",
    "written": "rows labelled now",
    "before": "rows labelled earlier",
    "contradicted": "rows labelled earlier, with another label than these files have",
    "unlabelled": "rows without a label yet",
    "not_predicted": "rows with a label but no prediction, left out: preprocessing rejects such rows",
    "conflicting": "rows waiting, with labels that differ",
    "not_writable": "rows left out: a value holds a line end, and the schema has no csv: {quoted_newlines: true}",
    "unmatched_labels": "keys of labels without a request",
    "invalid_labels": "labels left out, of rows that preprocessing would reject:",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions(Options):
    """What is joined."""

    store: str = option("the stored requests: the --store of a server", positional=True, metavar="STORE")
    labels: tuple[str, ...] = option(
        "CSV files with labels (default: write the requests without labels)", (), positional=True, metavar="FILE"
    )
    output: str = option("the new file of labelled rows; of images the folder of their classes", metavar="PATH")

    def __post_init__(self) -> None:
        for path in (self.store, self.output):
            if not storage.is_local(path):
                raise UsageError(f"{path}: must be on local disk")


def _run(options: LabelOptions, prog: str) -> command.Report:
    from millrace.label.joining import join_labels, write_requests

    with command.when_interrupted("run the command again"), interruptible(sigterm=True):
        if not options.labels:
            rows = write_requests(options.store, options.output)
            text = f"{counted(rows, 'requests', '9,')} in {options.output}"
            return command.Report(text, {"stored": rows, "file": os.path.abspath(options.output)})
        joined = join_labels(options.store, options.labels, options.output)
    lines = []
    for name, text in _LINES.items():
        if joined.counts[name] or name in ("stored", "written"):
            noun, rest = text.split(" ", 1)
            lines.append(f"{counted(joined.counts[name], noun, '9,')} {rest}")
    lines += [f"{'':>9} {example}" for example in joined.examples]
    if (more := joined.counts["invalid_labels"] - len(joined.examples)) > 0:
        lines.append(f"{'':>9} and {more:,} more")
    lines.append(f"labelled  {joined.file or 'nothing new'}")
    counts = {name: joined.counts[name] for name in ("labels", *_LINES)}
    return command.Report("\n".join(lines), {"file": joined.file, **counts, "examples": joined.examples})


COMMAND = command.Command(prog=PROG, options=LabelOptions, work=_run, description=__doc__ or "")
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
