"""`python -m beam_jobs.predict`: bulk inference, raw files and an exported model -> sharded files of predictions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from beam_jobs.core.progress import Notes
from beam_jobs.predicting.options import PROG, BulkOptions, parse, parser
from schemas import command, interrupts
from schemas.dataset import layout
from schemas.predictions.manifest import Predictions

__all__ = ["main", "parser"]


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses, runs, reports. Returns the exit code: 0 done, 1 failed, 2 usage error, 130 or 143 after a signal."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options, notes = parse(argv, prog=prog), Notes()
    from beam_jobs.predicting.job import run_job

    with command.when_interrupted("nothing was committed"), interrupts.interruptible(sigterm=options.is_local):
        manifest = run_job(options, report=notes)
    return command.Report(
        "\n".join([*told(options, manifest), *notes.lines()]), {**as_data(options, manifest), "notes": notes}
    )


def reasons(manifest: Predictions) -> Counter[str]:
    """How many records were rejected, by reason."""
    found: Counter[str] = Counter()
    for count in manifest.totals if manifest.input_files else manifest.counts:
        if count.reason:
            found[count.reason] += count.rows
    return found


def told(options: BulkOptions, manifest: Predictions) -> list[str]:
    """The summary, as lines of text."""
    rate = manifest.read / manifest.seconds if manifest.seconds else 0
    size = sum(shard.bytes for shard in manifest.shards)
    lines = [
        f"read       {manifest.read:>12,} records from {manifest.number_of_inputs:,} input(s)",
        f"predicted  {manifest.predicted:>12,} in {len(manifest.shards)} shard(s), {size / 1e6:,.1f} MB",
        f"rejected   {manifest.rejected:>12,}",
        *(f"  {reason:<24} {rows:>,}" for reason, rows in reasons(manifest).most_common()),
        f"time       {manifest.seconds:>12,.1f} s, {rate:,.0f} records/s",
        f"manifest   {layout.join(options.output, layout.MANIFEST)}",
    ]
    if manifest.rejected:
        lines.append(f"rejects    {layout.join(options.output, manifest.run, 'rejects-*.jsonl')}")
    return lines


def as_data(options: BulkOptions, manifest: Predictions) -> dict[str, Any]:
    """The same for programs."""
    return {
        "output": options.output,
        "run": manifest.run,
        "format": manifest.format,
        "read": manifest.read,
        "predicted": manifest.predicted,
        "rejected": manifest.rejected,
        "reasons": dict(reasons(manifest).most_common()),
        "shards": [shard.model_dump() for shard in manifest.shards],
        "seconds": manifest.seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
