"""Runs that end without a commit: their rejects, and why they failed, are kept in the folder `failed/RUN`."""

from __future__ import annotations

import collections
import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from beam_jobs.runs.run import NewRun
from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.rejects import Reject, read_rejects
from schemas.storage import folders
from schemas.storage.json_files import read_if_there

if TYPE_CHECKING:
    from beam_jobs.transform.rejects import RawBytes


def keep_rejects(run: NewRun, error: BaseException, raw_bytes: RawBytes) -> str:
    """Saves a failed run's rejects under `failed/`, and then a summary with the error, if there are any.

    Args:
      run: the run.
      error: why it failed.
      raw_bytes: reads the raw bytes of rejects from the input.

    Returns:
      The part of the error message about the rejects: how many by reason, and where they are; '' if there are none.
    """
    folder = layout.join(run.output, layout.FAILED, run.id)
    reasons: collections.Counter[str] = collections.Counter()
    places: set[tuple[str, int]] = set()  # a record is rejected by both passes, and again by a retried bundle
    first: Reject | None = None
    lost = 0
    for i, (rejects, has_raw) in enumerate(_rejects_in(run.staging, raw_bytes)):
        new = [reject for reject in rejects if (reject.source, reject.offset) not in places]
        places.update((reject.source, reject.offset) for reject in new)
        reasons.update(reject.reason for reject in new)
        first = first or next(iter(new), None)
        lost += 0 if has_raw else len(new)
        if new:
            lines = "".join(f"{reject.to_json()}\n" for reject in new)
            folders.create(layout.join(folder, layout.rejects_name(i)), lines.encode())
    if first is None:
        return ""
    note = _about_rejects(folder, first, reasons, error, lost=lost)
    _write_summary(run, error, note, reasons)
    return note


def refuse(run: NewRun, error: MillraceError, raw_bytes: RawBytes) -> None:
    """Records that a run is refused. Raises MillraceError if that cannot be written."""
    if not keep_rejects(run, error, raw_bytes):
        _write_summary(run, error, "", collections.Counter())


def reason_of_failure(output: str, run: str) -> str | None:
    """Reads why a run was refused or has failed. Returns None if its folder does not say."""
    summary = read_if_there(layout.join(output, layout.FAILED, run, layout.SUMMARY), "why a run has failed")
    return None if summary is None else str(summary["message"])


def last_failed(output: str) -> tuple[str, str] | None:
    """Finds the run that has failed since the last commit, if any, and returns its name and the reason."""
    committed = committed_run(output)
    for run in sorted(storage.listdir(layout.join(output, layout.FAILED)), reverse=True):
        path = layout.join(output, layout.FAILED, run, layout.SUMMARY)
        summary = read_if_there(path, "why a run has failed") if layout.RUN.fullmatch(run) else None
        if summary is not None and summary["dataset"] == committed:
            return run, str(summary["message"])
    return None


def committed_run(output: str) -> str | None:
    """Reads which run the manifest is of. Returns None if there is no manifest."""
    manifest = read_if_there(layout.join(output, layout.MANIFEST), "the manifest")
    return None if manifest is None else str(manifest["run"])


def _write_summary(run: NewRun, error: BaseException, note: str, reasons: collections.Counter[str]) -> None:
    message = str(error) or type(error).__name__
    committed: str | None = None
    with contextlib.suppress(MillraceError):  # a damaged manifest, which is not why this run has failed
        committed = committed_run(run.output)
    summary = {
        "run": run.id,
        "dataset": committed,  # the run that `last_failed` compares with that of the manifest then
        "error": message,
        "rejected": dict(reasons.most_common()),
        "message": message + note,
    }
    path = layout.join(run.output, layout.FAILED, run.id, layout.SUMMARY)
    folders.create(path, json.dumps(summary, indent=1).encode() + b"\n")


def _about_rejects(
    folder: str, first: Reject, reasons: collections.Counter[str], error: BaseException, *, lost: int
) -> str:
    by_reason = ", ".join(f"{reason} {rows:,}" for reason, rows in reasons.most_common())
    if "not_utf8" in reasons:
        by_reason += " (of files in another encoding: declare it in the schema, such as csv: {encoding: latin-1})"
    limit = ", or raise a limit" if "--max_reject" in str(error) else ""
    without = f" ({lost:,} of them without raw bytes: the input cannot be read again)" if lost else ""
    return (
        f"\nrejected: {by_reason}\n{_example(first)}\n"
        f"They are listed in {layout.join(folder, 'rejects-*.jsonl')}, with their places and raw bytes{without}. "
        f"Nothing was committed. Fix the input or the schema{limit}."
    )


def _example(reject: Reject) -> str:
    place = f"{reject.source}, byte {reject.offset:,}" if reject.offset else reject.source
    return f"one of them: {place}: {reject.column + ': ' if reject.column else ''}{reject.detail}"


def _rejects_in(staging: str, raw_bytes: RawBytes) -> Iterator[tuple[list[Reject], bool]]:
    """The rejects of each file, and whether they have raw bytes; those of the transform come last and together."""
    from beam_jobs.transform.rejects import PHASE, with_raw_bytes

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
