"""`python -m beam_jobs.preprocess`: writes raw files as a dataset, or appends them to a dataset."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.options import PROG, AppendOptions, JobOptions, app, kind_of, parse_as
from beam_jobs.core.progress import JobNotes
from schemas import command, interrupts, storage
from schemas.dataset import layout
from schemas.dataset.show import describe
from schemas.errors import counted

__all__ = ["app", "main"]

if TYPE_CHECKING:
    from beam_jobs.runs.append import AppendOutcome
    from schemas.dataset.holders import RemoteHolder
    from schemas.dataset.manifest import Manifest


def summarize(output: str, manifest: Manifest, began: float | None = None) -> str:
    """Describes a dataset in several lines, after its job is done.

    Args:
      output: the dataset's directory.
      manifest: the dataset's manifest.
      began: when this command began, by `time.monotonic`, if it has run the whole job; None: another command has.
    """
    from schemas.spec.loader import records_called

    records = records_called(manifest.format)
    source = f" from {counted(manifest.number_of_inputs, 'files')}" if records == "rows" else ""
    lines = [f"read       {counted(manifest.read, records, '12,')}{source}"]
    for split, content in manifest.splits.items():
        lines.append(f"{split:<10} {counted(content.rows, records, '12,')} in {counted(len(content.shards), 'shards')}")
    lines.append(f"rejected   {counted(manifest.rejected, records, '12,')}")
    reasons: dict[str, int] = {}
    for count in manifest.outcomes:
        if count.reason:
            reasons[count.reason] = reasons.get(count.reason, 0) + count.rows
    lines += [f"  {reason:<24} {rows:>,}" for reason, rows in sorted(reasons.items(), key=lambda item: -item[1])]
    lines += [f"warning    {warning.message}" for warning in manifest.warnings]
    compared = drift_of(output, manifest)
    lines += [
        f"drift      {comparison['second']} against {comparison['first']}: {comparison['summary']}"
        for comparison in compared
    ]
    rate = manifest.read / manifest.seconds if manifest.seconds else 0
    lines.append(f"{_time(manifest, began)}, {rate:,.0f} {records}/s")
    lines += places(output, manifest)
    return "\n".join(lines)


def _time(manifest: Manifest, began: float | None) -> str:
    """Describes the time of the command, which includes the start and the clean-up, and the time of the job.

    `began`: when the command began; None: describes only the time of the job, which the manifest has.
    """
    if began is None:
        return f"time       {manifest.seconds:>12,.1f} s"
    return f"time       {time.monotonic() - began:>12,.1f} s, {manifest.seconds:,.1f} s of them for the job itself"


def drift_of(output: str, manifest: Manifest) -> list[dict[str, Any]]:
    """Reads the comparisons of a dataset's splits with train, and of the dataset with the one that it replaced."""
    from beam_jobs.runs.drift import read_drift

    return read_drift(layout.join(output, manifest.run))


def _comparisons(output: str, manifest: Manifest) -> list[dict[str, Any]]:
    """Reads the comparisons for --json, without the features, which may be many and are in `drift.json`."""
    return [
        {name: value for name, value in comparison.items() if name != "features"}
        for comparison in drift_of(output, manifest)
    ]


def summarize_append(output: str, outcome: AppendOutcome, began: float) -> str:
    """Describes an append or a replay in several lines, and the dataset as it is now.

    Args:
      output: the dataset's directory.
      outcome: the outcome of the append.
      began: when the command began, by `time.monotonic`.
    """
    from schemas.spec.loader import records_called

    before, manifest = outcome.before, outcome.manifest
    records = records_called(manifest.format)
    skipped = [f"skipped    {path}: known as {known_path}" for path, known_path in outcome.skipped]
    left = [*storage.first_lines(skipped), *_left_out(outcome)]
    if manifest.run == before.run:
        return "\n".join([f"nothing to add: {output} is unchanged", *left])
    read = manifest.read - before.read  # 0 after a replay, which reads no new records
    lines = [f"read       {counted(read, records, '12,')} more"] if read else []
    lines += [f"added      {counted(outcome.added, records, '12,')}", *left]
    for split, now in manifest.splits.items():
        more = now.rows - before.splits[split].rows
        shards = counted(len(now.shards), "shards")
        lines.append(f"{split:<10} {counted(now.rows, records, '12,')} in {shards}, {more:,} of them new")
    new = f", {manifest.rejected - before.rejected:,} of them new" if read else " still"
    lines.append(f"rejected   {counted(manifest.rejected, records, '12,')}{new}")
    lines += [f"warning    {w.message}" for w in manifest.warnings if w not in before.warnings]
    lines.append(_time(manifest, began))
    return "\n".join([*lines, *places(output, manifest)])


def _left_out(outcome: AppendOutcome) -> Iterator[str]:
    """Yields a line for each reason why corrected lines of a replay were not added, with their number."""
    choice = outcome.choice
    again = max(0, len(choice.records) - outcome.added)
    for count, why in (
        (again, "rejected once more, with their new reasons"),
        (choice.unchanged, "unchanged, so they stay rejected"),
        (choice.gone, "already replayed or never rejected"),
        (choice.repeated, "given more than once"),
    ):
        if count:
            yield f"{'':<10} {count:>12,} {why}"


def places(output: str, manifest: Manifest) -> list[str]:
    """Returns lines that say where the manifest, the rejects and the report are."""
    lines = [f"manifest   {layout.join(output, layout.MANIFEST)}"]
    if manifest.rejected:
        lines.append(f"rejects    {layout.join(output, manifest.run, 'rejects-*.jsonl')}")
    lines.append(f"report     {layout.join(output, manifest.run, layout.REPORT)}")
    return lines


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Runs the command with these arguments (None: those of the process) and prints a report.

    Returns:
      The exit code: 0 done, 1 failed, 2 usage error, 130 or 143 after a signal.
    """
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    as_json, notes, began = command.wants_json(argv), JobNotes(), time.monotonic()
    with command.when_interrupted("nothing was committed"):
        options = parse_as(kind_of(argv), argv, prog=prog)
        with interrupts.interruptible(sigterm=options.is_local):  # a job on a cluster goes on without its launcher
            match options:
                case JobOptions():
                    return _preprocess(options, notes, began, as_json=as_json)
                case AppendOptions():
                    return _append(options, notes, began, as_json=as_json)


def _preprocess(options: JobOptions, notes: JobNotes, began: float, *, as_json: bool) -> command.Report:
    """Runs, submits or tries a job that writes a new dataset. `began`: when the command began."""
    from beam_jobs.runs.job import run_job, submit_job

    if options.dry_run:
        return _dry_run(options)
    if options.no_wait:
        return _submitted(options, submit_job(options, report=notes), as_json=as_json)
    manifest = run_job(options, report=notes)
    text = "\n".join([summarize(options.output, manifest, began), *notes.lines()])
    data = (
        {**describe(options.output), "notes": notes, "drift": _comparisons(options.output, manifest)} if as_json else {}
    )
    return command.Report(text, data)


def _dry_run(options: JobOptions) -> command.Report:
    from beam_jobs.dry_run import dry_run

    report = dry_run(options)
    return command.Report(report.as_text(), report.as_data(), int(bool(report.problems)), only_printed=True)


def _submitted(options: JobOptions, holder: RemoteHolder, *, as_json: bool) -> command.Report:
    """Reports a job that was submitted to a cluster: the job, its run, and how to ask about it."""
    lines = [f"submitted  {holder.job}", f"run        {layout.join(options.output, holder.run)}"]
    lines.append(
        f"next       it commits by itself; `millrace job status --output {options.output}` tells how it is doing"
    )
    data = {"path": options.output, "run": holder.run, "job": holder.job.model_dump()}
    return command.Report("\n".join(lines), data if as_json else {})


def _append(options: AppendOptions, notes: JobNotes, began: float, *, as_json: bool) -> command.Report:
    """Runs an append or a replay. `began`: when the command began."""
    from beam_jobs.runs.append import run_append

    outcome = run_append(options, report=notes)
    details = {
        "added": outcome.added,
        "skipped": [{"path": path, "known_as": known_path} for path, known_path in outcome.skipped],
        "notes": notes,
    }
    data = {**describe(options.append_to), **details} if as_json else {}
    return command.Report("\n".join([summarize_append(options.append_to, outcome, began), *notes.lines()]), data)


if __name__ == "__main__":
    sys.exit(main())
