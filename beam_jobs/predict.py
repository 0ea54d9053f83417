"""`python -m beam_jobs.predict`: bulk inference. Applies an exported model to raw files, and writes predictions."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from beam_jobs.core import progress
from beam_jobs.core.progress import JobNotes
from beam_jobs.predicting.options import PROG, BulkOptions, app, parse
from schemas import command, interrupts
from schemas.dataset import layout
from schemas.errors import counted
from schemas.exports.notes import read_notes
from schemas.predictions.manifest import PredictionsManifest
from schemas.spec.table import Schema

__all__ = ["app", "main"]


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Runs the command with these arguments (None: those of the process) and prints a report.

    Returns:
      The exit code: 0 done, 1 failed, 2 usage error, 130 or 143 after a signal.
    """
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options, notes, began = parse(argv, prog=prog), JobNotes(), time.monotonic()
    from beam_jobs.predicting.job import run_job

    with command.when_interrupted("nothing was committed"), interrupts.interruptible(sigterm=options.is_local):
        manifest = run_job(options, report=notes)
    schema, _ = read_notes(options.export)
    if isinstance(schema, Schema):
        from schemas.exports.words import notes_of

        notes += notes_of(manifest.unknown, manifest.predicted, schema)
    return command.Report(
        "\n".join([*summary_lines(options, manifest, time_of(options, manifest, began)), *notes.lines()]),
        {**as_data(options, manifest), "notes": notes},
    )


def time_of(options: BulkOptions, manifest: PredictionsManifest, began: float) -> str:
    """Describes the time and the rate of the predictions in one line.

    If the job ran in this process, the rate is that of predicting alone. On a cluster, only the time of the whole job
    is known, and the line says that the job's start and end are included.

    Args:
      options: the job's options.
      manifest: the manifest of the predictions.
      began: when the command began, by `time.monotonic`.
    """
    phases = progress.JOB.phases()
    predicting = sum(seconds for phase, seconds in phases if phase == "predicting")
    if not (options.is_local and predicting):
        return f"{command.rate(manifest.read, 'records', manifest.seconds)}, the job's start and end included"
    startup = time.monotonic() - began - predicting - sum(s for phase, s in phases if phase == "committing")
    return command.rate(manifest.read, "records", predicting, startup=startup)


def reasons(manifest: PredictionsManifest) -> Counter[str]:
    """Counts the rejected records by reason."""
    counts: Counter[str] = Counter()
    for count in manifest.totals if manifest.input_files else manifest.counts:
        if count.reason:
            counts[count.reason] += count.rows
    return counts


def summary_lines(options: BulkOptions, manifest: PredictionsManifest, seconds: str) -> list[str]:
    """Returns the lines of the summary that the command prints. `seconds`: the description of the time."""
    size = sum(shard.bytes for shard in manifest.shards)
    lines = [
        f"read       {counted(manifest.read, 'records', '12,')} from {counted(manifest.number_of_inputs, 'inputs')}",
        f"predicted  {manifest.predicted:>12,} in {counted(len(manifest.shards), 'shards')}, {size / 1e6:,.1f} MB",
        f"rejected   {manifest.rejected:>12,}",
        *(f"  {reason:<24} {rows:>,}" for reason, rows in reasons(manifest).most_common()),
        f"time       {seconds}",
        f"manifest   {layout.join(options.output, layout.MANIFEST)}",
    ]
    if manifest.rejected:
        lines.append(f"rejects    {layout.join(options.output, manifest.run, 'rejects-*.jsonl')}")
    return lines


def as_data(options: BulkOptions, manifest: PredictionsManifest) -> dict[str, Any]:
    """Returns the summary as JSON values, for --json."""
    return {
        "output": options.output,
        "run": manifest.run,
        "format": manifest.format,
        "read": manifest.read,
        "predicted": manifest.predicted,
        "rejected": manifest.rejected,
        "reasons": dict(reasons(manifest).most_common()),
        "unknown": manifest.unknown,
        "shards": [shard.model_dump() for shard in manifest.shards],
        "seconds": manifest.seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
