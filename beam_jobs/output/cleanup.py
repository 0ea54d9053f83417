"""What is left of a run that failed, and of jobs that were killed."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Iterator

from beam_jobs.transform.rejects import PHASE, RawBytes, with_raw_bytes
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease, LeaseError
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.dataset.prune import prune
from schemas.errors import MillraceError
from schemas.rejects import Reject, read_rejects
from schemas.storage import compare_and_swap, folders
from schemas.storage.disk_errors import refused_by_disk


def after_failure(
    error: BaseException, *, output: str, run_id: str, staging: str, held: Lease, raw_bytes: RawBytes
) -> Manifest:
    """Keeps the rejects of a run that failed, removes the rest of it, and raises `error` again.

    `raw_bytes` reads rejects' records from the input.

    Returns:
      The manifest, where what went wrong came after the commit: then the dataset is whole, and nothing is removed.
    """
    manifest = compare_and_swap.look(layout.join(output, layout.MANIFEST)).data
    if manifest is not None and run_id.encode() in manifest:
        return read_manifest(output)
    kept = keep_failed(output, run_id, staging, error, raw_bytes)
    if isinstance(error, Exception) and not isinstance(error, LeaseError) and held.is_lost():
        raise held.lost() from error  # who took it may have removed the files that this job then missed
    refused = refused_by_disk(str(error))
    if refused is not None:
        raise MillraceError(f"{refused}. Free some space, or use another disk.{kept}") from error
    if isinstance(error, MillraceError):
        raise type(error)(f"{error}{kept}") from error
    if kept:
        print(f"{output}: the job failed{kept}", file=sys.stderr)
    raise error


def clear(output: str, held: Lease) -> None:
    """Removes what killed jobs left, and runs that no reader can have open any more. The dataset is whole without."""
    try:
        prune(output, held)
    except (MillraceError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        print(
            f"{output}: the dataset is written, but leftovers of earlier jobs could not be removed: {why}",
            file=sys.stderr,
        )


def keep_failed(output: str, run_id: str, staging: str, error: BaseException, raw_bytes: RawBytes) -> str:
    """Keeps a failed run's rejects, an account of them and the error under `failed/`, and removes the rest.

    Returns:
      What to tell of the rejects: how many there are by reason, and where they are kept; '' where there are none.
    """
    kept = layout.join(output, layout.FAILED, run_id)
    reasons: collections.Counter[str] = collections.Counter()
    seen: set[tuple[str, int]] = set()  # both passes reject a record, and so does a bundle that is run again
    lost = 0
    for i, (rejects, has_raw) in enumerate(_rejects_in(staging, raw_bytes)):
        new = [reject for reject in rejects if (reject.source, reject.offset) not in seen]
        seen.update((reject.source, reject.offset) for reject in new)
        reasons.update(reject.reason for reject in new)
        lost += 0 if has_raw else len(new)
        if new:
            lines = "".join(f"{reject.to_json()}\n" for reject in new)
            storage.write_bytes(layout.join(kept, layout.rejects_name(i)), lines.encode())
    folders.remove(layout.join(output, run_id))
    if not reasons:
        return ""
    summary = {"run": run_id, "error": str(error) or type(error).__name__, "rejected": dict(reasons.most_common())}
    storage.write_bytes(layout.join(kept, layout.SUMMARY), json.dumps(summary, indent=1).encode() + b"\n")
    told = ", ".join(f"{reason} {rows:,}" for reason, rows in reasons.most_common())
    without = f" ({lost:,} of them without raw bytes: the input cannot be read again)" if lost else ""
    return (
        f"\nrejected: {told}\nThey are listed in {layout.join(kept, 'rejects-*.jsonl')}, with their places and raw "
        f"bytes{without}. Nothing was committed. Fix the input, or raise a limit."
    )


def _rejects_in(staging: str, raw_bytes: RawBytes) -> Iterator[tuple[list[Reject], bool]]:
    """The rejects of each file, those of the transform last and together, and whether they have their raw bytes."""
    names = [name for name in storage.listdir(staging) if name.startswith("rejects-")]
    late = [layout.join(staging, name) for name in names if name.startswith(f"rejects-{PHASE}-")]
    for path in (layout.join(staging, name) for name in names):
        if path not in late:
            yield list(read_rejects(storage.read_bytes(path))), True
    if late:
        try:
            yield with_raw_bytes(late, raw_bytes), True
        except (MillraceError, OSError):  # the input may be what the job failed of
            yield with_raw_bytes(late, lambda rejects: [b""] * len(rejects)), False
