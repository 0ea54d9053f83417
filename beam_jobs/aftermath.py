"""What is left of a run that failed, and of jobs that were killed."""

from __future__ import annotations

import collections
import json
import sys

from schemas import folders, layout, storage, swap
from schemas.errors import MillraceError
from schemas.full_disk import refused_by_disk
from schemas.lease import Lease, LeaseError
from schemas.manifest import Manifest, read_manifest
from schemas.prune import prune


def after_failure(error: BaseException, *, output: str, run_id: str, staging: str, held: Lease) -> Manifest:
    """Keeps the rejects of a run that failed, removes the rest of it, and raises `error` again.

    Returns:
      The manifest, where what went wrong came after the commit: then the data set is whole, and nothing is removed.
    """
    manifest = swap.look(layout.join(output, layout.MANIFEST)).data
    if manifest is not None and run_id.encode() in manifest:
        return read_manifest(output)
    kept = keep_failed(output, run_id, staging, error)
    if isinstance(error, Exception) and not isinstance(error, LeaseError) and held.is_lost():
        raise held.lost() from error  # who took it may have removed the files that this job then missed
    refused = refused_by_disk(str(error))
    if refused is not None:
        raise MillraceError(f"{refused}. Make room there, or take another disk.{kept}") from error
    if isinstance(error, MillraceError):
        raise type(error)(f"{error}{kept}") from error
    raise error


def clear(output: str, held: Lease) -> None:
    """Removes what killed jobs left, and runs that no reader can have open any more. The data set is whole without."""
    try:
        prune(output, held)
    except (MillraceError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        print(f"{output}: the data set is written, leftovers of earlier jobs are not removed: {why}", file=sys.stderr)


def keep_failed(output: str, run_id: str, staging: str, error: BaseException) -> str:
    """Keeps a failed run's rejects, an account of them and the error under `failed/`, and removes the rest.

    Returns:
      What to tell of the rejects: how many there are by reason, and where they are kept; '' where there are none.
    """
    kept = layout.join(output, layout.FAILED, run_id)
    names = [n for n in storage.listdir(staging) if n.startswith("rejects-")]
    # Where the second pass began, its rejects are those of the first and more.
    phase = "transforming" if any("transforming" in n for n in names) else "analyzing"
    reasons: collections.Counter[str] = collections.Counter()
    for i, name in enumerate(n for n in names if phase in n):
        path = layout.join(kept, layout.rejects_name(i))
        folders.move(layout.join(staging, name), path)
        reasons.update(json.loads(line)["reason"] for line in storage.read_bytes(path).splitlines())
    folders.remove(layout.join(output, run_id))
    if not reasons:
        return ""
    summary = {"run": run_id, "error": str(error) or type(error).__name__, "rejected": dict(reasons.most_common())}
    storage.write_bytes(layout.join(kept, layout.SUMMARY), json.dumps(summary, indent=1).encode() + b"\n")
    told = ", ".join(f"{reason} {rows:,}" for reason, rows in reasons.most_common())
    return (
        f"\nrejected: {told}\nEach stands in {layout.join(kept, 'rejects-*.jsonl')}, with its place and its raw bytes. "
        "Nothing was committed. Mend the input, or raise a limit."
    )
