"""Keeps the rejects of runs that end without a commit, and the reason of the failure, in the folder `failed/RUN`."""

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
    """Saves the rejects of a failed run under `failed/`, and then a summary. Saves nothing if there are no rejects.

    Args:
      run: the run.
      error: the error that ended the run.
      raw_bytes: reads the raw bytes of rejects from the input.

    Returns:
      The part of the error message about the rejects: how many by reason, and where they are; '' without rejects.
    """
    folder = layout.join(run.output, layout.FAILED, run.id)
    reasons: collections.Counter[str] = collections.Counter()
    places: set[tuple[str, int]] = set()  # to save each record once: both passes reject it, and so do retried bundles
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
    """Records in `failed/RUN` that a run is refused, and why: its result must not be committed.

    Raises:
      MillraceError: the files cannot be written.
    """
    if not keep_rejects(run, error, raw_bytes):
        _write_summary(run, error, "", collections.Counter())


def reason_of_failure(output: str, run: str) -> str | None:
    """Reads why a run was refused or has failed. Returns None if `failed/RUN` holds no summary."""
    summary = read_if_there(layout.join(output, layout.FAILED, run, layout.SUMMARY), "why a run has failed")
    return None if summary is None else str(summary["message"])


def last_failed(output: str) -> tuple[str, str] | None:
    """Finds the latest run that has failed since the last commit.

    Returns:
      The run's name and the reason of the failure; None if no run has failed since the last commit.
    """
    committed = committed_run(output)
    for run in sorted(storage.listdir(layout.join(output, layout.FAILED)), reverse=True):
        path = layout.join(output, layout.FAILED, run, layout.SUMMARY)
        summary = read_if_there(path, "why a run has failed") if layout.RUN.fullmatch(run) else None
        if summary is not None and summary["dataset"] == committed:
            return run, str(summary["message"])
    return None


def committed_run(output: str) -> str | None:
    """Reads from the manifest which run was committed last. Returns None if there is no manifest."""
    manifest = read_if_there(layout.join(output, layout.MANIFEST), "the manifest")
    return None if manifest is None else str(manifest["run"])


def _write_summary(run: NewRun, error: BaseException, note: str, reasons: collections.Counter[str]) -> None:
    """Writes `failed/RUN/summary.json`. `note`: text about the rejects, added to the message; '' without rejects."""
    message = str(error) or type(error).__name__
    committed: str | None = None
    with contextlib.suppress(MillraceError):  # a damaged manifest must not hide the error of this run
        committed = committed_run(run.output)
    summary = {
        "run": run.id,
        "dataset": committed,  # `last_failed` compares this run with the manifest's: equal means no commit since
        "error": message,
        "rejected": dict(reasons.most_common()),
        "message": message + note,
    }
    path = layout.join(run.output, layout.FAILED, run.id, layout.SUMMARY)
    folders.create(path, json.dumps(summary, indent=1).encode() + b"\n")


def _about_rejects(
    folder: str, first: Reject, reasons: collections.Counter[str], error: BaseException, *, lost: int
) -> str:
    """The part of the error message about the rejects. `lost`: the number of rejects without raw bytes."""
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
    """Yields the rejects of each file in staging, and whether they have raw bytes.

    The rejects of the transform are stored without raw bytes, so they come last, together, and their raw bytes are
    read from the input.
    """
    from beam_jobs.transform.rejects import PHASE, with_raw_bytes

    names = [name for name in storage.listdir(staging) if name.startswith("rejects-")]
    late = [layout.join(staging, name) for name in names if name.startswith(f"rejects-{PHASE}-")]
    for path in (layout.join(staging, name) for name in names):
        if path not in late:
            yield list(read_rejects(storage.read_bytes(path))), True
    if late:
        try:
            yield with_raw_bytes(late, raw_bytes), True
        except (MillraceError, OSError):  # the job may have failed because the input cannot be read
            yield with_raw_bytes(late, lambda rejects: [b""] * len(rejects)), False
