"""Cleans up after failed and killed jobs."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from beam_jobs.transform.rejects import PHASE, RawBytes, with_raw_bytes
from schemas import outage, storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease, LeaseError
from schemas.dataset.prune import prune
from schemas.errors import MillraceError, tell
from schemas.rejects import Reject, read_rejects
from schemas.storage import folders
from schemas.storage.local import refused_by_disk

M = TypeVar("M")  # a manifest


def after_failure(
    error: BaseException,
    *,
    output: str,
    run_id: str,
    staging: str,
    held: Lease,
    raw_bytes: RawBytes,
    read: Callable[[str], M],
) -> M:
    """Saves the rejects of a failed run, removes its other files, and raises `error` again.

    Args:
      error: the error that ended the run.
      output: the dataset directory.
      run_id: the failed run.
      staging: its staging folder.
      held: the lease of the job.
      raw_bytes: reads the raw bytes of rejects from the input.
      read: reads the manifest of the output.

    Returns:
      The manifest, if the error came after the commit: then the dataset is complete, and nothing is removed.

    Raises:
      MillraceError: a MillraceError, a full disk, or the loss of the lease, with a summary of the rejects.
      BaseException: any other `error`, unchanged.
    """
    refused = refused_by_disk(str(error))
    told = str(error) if refused is None else f"{refused}. Free some space, or use another disk."
    with outage.leaving():
        rejected = ""
        if outage.is_outage(error):  # the clean-up asks the same server
            tell(told)
        try:
            manifest = folders.look(layout.join(output, layout.MANIFEST)).data
        except MillraceError as problem:
            left = f"\nWhether it was committed could not be found out, so {_left(output, run_id, problem)}"
        else:
            if manifest is not None and run_id.encode() in manifest:
                return read(output)
            rejected, left = _cleaned_up(error, output=output, run_id=run_id, staging=staging, raw_bytes=raw_bytes)
        if isinstance(error, Exception) and not isinstance(error, LeaseError) and held.is_lost():
            raise held.lost() from error  # the new holder may have removed files that this job then missed
    if isinstance(error, MillraceError) or refused is not None:
        kind = type(error) if isinstance(error, MillraceError) and refused is None else MillraceError
        raise kind(f"{told}{rejected}{left}") from error
    if rejected or left:
        print(f"{output}: the job failed{rejected}{left}", file=sys.stderr)
    raise error


def _cleaned_up(
    error: BaseException, *, output: str, run_id: str, staging: str, raw_bytes: RawBytes
) -> tuple[str, str]:
    """Keeps the rejects, and removes everything else. Returns what to say of the rejects, and of what is left."""
    rejected = ""
    try:
        rejected = keep_failed(output, run_id, staging, error, raw_bytes)
    except (MillraceError, OSError) as problem:  # the disk that is full, or the server that failed
        rejected = f"\nIts rejects could not be kept: {problem}"
    try:
        folders.remove(layout.join(output, run_id))
    except MillraceError as problem:
        return rejected, f"\n{_left(output, run_id, problem)}"
    return rejected, ""


def _left(output: str, run_id: str, problem: MillraceError) -> str:
    return (
        f"{layout.join(output, run_id)} stays until the next job there, or `millrace dataset prune {output}`, "
        f"removes it: {problem}"
    )


def clear(output: str, held: Lease) -> None:
    """Removes leftovers of killed jobs, and replaced runs that no reader can still have open.

    Failure is only a warning: the dataset is complete without this.
    """
    try:
        prune(output, held)
    except (MillraceError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        print(
            f"{output}: the dataset is written, but leftovers of earlier jobs could not be removed: {why}",
            file=sys.stderr,
        )


def keep_failed(output: str, run_id: str, staging: str, error: BaseException, raw_bytes: RawBytes) -> str:
    """Saves a failed run's rejects and a summary under `failed/`, unless another process has done so.

    Returns:
      The part of the error message about the rejects: how many by reason, and where they are; '' if there are none.
    """
    folder = layout.join(output, layout.FAILED, run_id)
    reasons: collections.Counter[str] = collections.Counter()
    seen: set[tuple[str, int]] = set()  # a record is rejected by both passes, and again by a retried bundle
    lost = 0
    for i, (rejects, has_raw) in enumerate(_rejects_in(staging, raw_bytes)):
        new = [reject for reject in rejects if (reject.source, reject.offset) not in seen]
        seen.update((reject.source, reject.offset) for reject in new)
        reasons.update(reject.reason for reject in new)
        lost += 0 if has_raw else len(new)
        if new:
            lines = "".join(f"{reject.to_json()}\n" for reject in new)
            folders.create(layout.join(folder, layout.rejects_name(i)), lines.encode())
    if not reasons:
        return ""
    summary = {"run": run_id, "error": str(error) or type(error).__name__, "rejected": dict(reasons.most_common())}
    folders.create(layout.join(folder, layout.SUMMARY), json.dumps(summary, indent=1).encode() + b"\n")
    by_reason = ", ".join(f"{reason} {rows:,}" for reason, rows in reasons.most_common())
    without = f" ({lost:,} of them without raw bytes: the input cannot be read again)" if lost else ""
    return (
        f"\nrejected: {by_reason}\nThey are listed in {layout.join(folder, 'rejects-*.jsonl')}, with their places and "
        f"raw bytes{without}. Nothing was committed. Fix the input, or raise a limit."
    )


def _rejects_in(staging: str, raw_bytes: RawBytes) -> Iterator[tuple[list[Reject], bool]]:
    """The rejects of each file, and whether they have raw bytes; those of the transform come last and together."""
    names = [name for name in storage.listdir(staging) if name.startswith("rejects-")]
    late = [layout.join(staging, name) for name in names if name.startswith(f"rejects-{PHASE}-")]
    for path in (layout.join(staging, name) for name in names):
        if path not in late:
            yield list(read_rejects(storage.read_bytes(path))), True
    if late:
        try:
            yield with_raw_bytes(late, raw_bytes), True
        except (MillraceError, OSError):  # an unreadable input may be the reason why the job failed
            yield with_raw_bytes(late, lambda rejects: [b""] * len(rejects)), False
