"""`python -m beam_jobs.preprocess`: raw files -> a data set directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas import layout
from schemas.errors import MillraceError

if TYPE_CHECKING:
    from schemas.manifest import Manifest


def summarize(output: str, manifest: Manifest) -> str:
    """What a person wants to know when the job is done."""
    lines = [f"read       {manifest.read:>12,} rows from {len(manifest.inputs)} file(s)"]
    for split, content in manifest.splits.items():
        lines.append(f"{split:<10} {content.rows:>12,} rows in {len(content.shards)} shard(s)")
    lines.append(f"rejected   {manifest.rejected:>12,} rows")
    reasons: dict[str, int] = {}
    for count in manifest.counts:
        if count.reason:
            reasons[count.reason] = reasons.get(count.reason, 0) + count.rows
    lines += [f"  {reason:<24} {rows:>,}" for reason, rows in sorted(reasons.items(), key=lambda item: -item[1])]
    rate = manifest.read / manifest.seconds if manifest.seconds else 0
    lines.append(f"time       {manifest.seconds:>12,.1f} s, {rate:,.0f} rows/s")
    lines.append(f"manifest   {layout.join(output, layout.MANIFEST)}")
    if manifest.rejected:
        lines.append(f"rejects    {layout.join(output, manifest.run, 'rejects-*.jsonl')}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, runs, reports. Returns the exit status: 0 done, 1 failed, 2 asked wrongly, 130 interrupted."""
    from beam_jobs.options import parse

    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        from beam_jobs.job import run_job

        manifest = run_job(options)
    except MillraceError as error:
        print(f"beam_jobs.preprocess: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("beam_jobs.preprocess: interrupted; nothing was committed", file=sys.stderr)
        return 130
    print(summarize(options.output, manifest))
    return 0


if __name__ == "__main__":
    sys.exit(main())
