"""`python -m beam_jobs.preprocess`: raw files -> a dataset directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError

if TYPE_CHECKING:
    from beam_jobs.replay.run import Outcome
    from schemas.dataset.manifest import Manifest


RECORDS = {"csv": "rows", "image_folder": "images", "image_pairs": "pairs"}  # what they are called, by format


def summarize(output: str, manifest: Manifest) -> str:
    """The summary that is printed when the job is done."""
    records = RECORDS[manifest.format]
    source = f" from {len(manifest.inputs)} file(s)" if manifest.format == "csv" else ""
    lines = [f"read       {manifest.read:>12,} {records}{source}"]
    for split, content in manifest.splits.items():
        lines.append(f"{split:<10} {content.rows:>12,} {records} in {len(content.shards)} shard(s)")
    lines.append(f"rejected   {manifest.rejected:>12,} {records}")
    reasons: dict[str, int] = {}
    for count in manifest.counts:
        if count.reason:
            reasons[count.reason] = reasons.get(count.reason, 0) + count.rows
    lines += [f"  {reason:<24} {rows:>,}" for reason, rows in sorted(reasons.items(), key=lambda item: -item[1])]
    lines += [f"warning    {warning.message}" for warning in manifest.warnings]
    rate = manifest.read / manifest.seconds if manifest.seconds else 0
    lines.append(f"time       {manifest.seconds:>12,.1f} s, {rate:,.0f} {records}/s")
    lines += places(output, manifest)
    return "\n".join(lines)


def summarize_replay(output: str, outcome: Outcome) -> str:
    """The summary of a replay: what happened to its lines, and what the dataset contains now."""
    choice, manifest, splits = outcome.choice, outcome.manifest, outcome.manifest.splits.items()
    records = RECORDS[manifest.format]
    told = (
        (outcome.again, "rejected once more, with their new reasons"),
        (choice.unchanged, "unchanged, so they stay rejected"),
        (choice.gone, "already replayed or never rejected"),
        (choice.repeated, "given more than once"),
    )
    lines = [f"{'':<10} {rows:>12,} {what}" for rows, what in told if rows]
    if not outcome.added:
        return "\n".join([f"nothing to add: {output} is unchanged", *lines])
    lines = [f"added      {outcome.added:>12,} {records}", *lines]
    lines += [f"{split:<10} {held.rows:>12,} {records} in {len(held.shards)} shard(s)" for split, held in splits]
    lines.append(f"rejected   {manifest.rejected:>12,} {records} still")
    lines += places(output, manifest)
    return "\n".join(lines)


def places(output: str, manifest: Manifest) -> list[str]:
    """Where the manifest and the rejects are."""
    lines = [f"manifest   {layout.join(output, layout.MANIFEST)}"]
    if manifest.rejected:
        lines.append(f"rejects    {layout.join(output, manifest.run, 'rejects-*.jsonl')}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, runs, reports. Returns the exit code: 0 done, 1 failed, 2 invalid usage, 130 interrupted."""
    try:
        print(_run(sys.argv[1:] if argv is None else argv))
    except MillraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; nothing was committed", file=sys.stderr)
        return 130
    return 0


def _run(argv: Sequence[str]) -> str:
    """Runs the job or the replay, and returns its summary."""
    from beam_jobs.replay.options import parse_replay, wants_replay

    if wants_replay(argv):
        replay = parse_replay(argv)
        from beam_jobs.replay.run import run_replay

        return summarize_replay(replay.append_to, run_replay(replay))
    from beam_jobs.core.options import parse

    options = parse(argv)
    from beam_jobs.runtime.job import run_job

    notes: list[str] = []

    def tell(lines: Sequence[str]) -> None:
        storage.say(lines)
        notes.extend(storage.few(lines))

    manifest = run_job(options, tell=tell)
    return "\n".join([summarize(options.output, manifest), *(f"note       {note}" for note in notes)])


if __name__ == "__main__":
    sys.exit(main())
