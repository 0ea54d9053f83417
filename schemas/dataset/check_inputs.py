"""Checks the numbers of the inputs against each other, and the files that hold them against the manifest."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from schemas.dataset import layout
from schemas.dataset.input_files import InputPart, read_inputs, totals_of
from schemas.dataset.issues import Issue
from schemas.dataset.manifest import Count, Manifest
from schemas.errors import MillraceError


def verify_part(part: InputPart, path: str) -> Iterator[Issue]:
    """Issues in the entries of some inputs, which stand in the file `path`."""
    for name, times in collections.Counter(file.path for file in part.inputs).items():
        if times > 1:
            yield Issue(path, "manifest", f"names the input {name} {times} times")
    by_outcome: collections.Counter[tuple[str, str]] = collections.Counter()
    for count in part.counts:
        by_outcome[count.input, count.outcome] += count.rows
        if count.rows < 0:
            yield _issue(path, f"{count.input}, {count.reason or count.split}: rows is {count.rows:,}")
        given = (count.split is not None, count.stage is not None, count.reason is not None)
        if given != ((True, False, False) if count.outcome == "written" else (False, True, True)):
            yield _issue(
                path,
                f"{count.input}: {count.rows:,} records are counted as {count.outcome} with the split {count.split!r}, "
                f"the stage {count.stage!r} and the reason {count.reason!r}; written records must have the first, "
                "rejected records the others",
            )
    for file in part.inputs:
        for name in ("bytes", "read", "written", "rejected"):
            if (number := getattr(file, name)) < 0:
                yield _issue(path, f"{file.path}: {name} is {number:,}")
        if file.header is not None and not 0 <= file.header < len(part.headers):
            yield _issue(path, f"{file.path}: has the header {file.header}, of {len(part.headers)}")
        lost = file.read - file.written - file.rejected
        if lost:
            yield _issue(
                path,
                f"{file.path}: {file.read:,} records read, {file.written:,} written and {file.rejected:,} rejected: "
                f"{abs(lost):,} {'unaccounted for' if lost > 0 else 'too many'}",
            )
        for outcome, total in (("written", file.written), ("rejected", file.rejected)):
            counted = by_outcome.pop((file.path, outcome), 0)
            if counted != total:
                yield _issue(path, f"{file.path}: {outcome} is {total:,}, but its counts sum to {counted:,}")
    for (name, outcome), rows in by_outcome.items():
        if rows:
            yield _issue(
                path, f"{name}: {rows:,} records are counted as {outcome}, but it is not an input of this dataset"
            )


def verify_input_files(data_dir: str, manifest: Manifest) -> Iterator[Issue]:
    """Issues in the files that hold the inputs, and whether they sum to what the manifest says."""
    if not manifest.input_files:
        return
    inputs = 0
    issues: list[Issue] = []

    def counts() -> Iterator[Count]:
        nonlocal inputs
        for name, part in zip(manifest.input_files, read_inputs(data_dir, manifest), strict=True):
            inputs += len(part.inputs)
            issues.extend(verify_part(part, name))
            yield from part.counts

    try:
        totals = totals_of(counts())
    except MillraceError:
        return  # missing or unreadable, which is reported elsewhere
    yield from issues
    if inputs != manifest.input_count:
        yield _issue(layout.MANIFEST, f"has {manifest.input_count:,} inputs, but the files of inputs list {inputs:,}")
    if totals != manifest.totals:
        yield _issue(layout.MANIFEST, "totals differ from the sums of the counts in the files of inputs")


def verify_summed(manifest: Manifest) -> Iterator[Issue]:
    """Issues in a manifest whose inputs are in files, apart from what is in these files."""
    if manifest.inputs or manifest.headers or manifest.counts:
        yield _issue(layout.MANIFEST, "lists inputs itself, and names files of inputs as well")
    names = {file.path for file in manifest.files}
    for path in manifest.input_files:
        if path not in names:
            yield Issue(layout.MANIFEST, "manifest", f"names the file of inputs {path}, which is not among its files")
    for outcome in ("written", "rejected"):
        total = sum(count.rows for count in manifest.totals if count.outcome == outcome)
        if getattr(manifest, outcome) != total:
            yield _issue(
                layout.MANIFEST, f"{outcome} is {getattr(manifest, outcome):,}, but its totals sum to {total:,}"
            )
    if manifest.read != manifest.written + manifest.rejected:
        yield _issue(
            layout.MANIFEST,
            f"{manifest.read:,} records read, {manifest.written:,} written and {manifest.rejected:,} rejected",
        )
    for count in manifest.totals:
        if count.rows < 0:
            yield _issue(layout.MANIFEST, f"{count.reason or count.split}: rows is {count.rows:,}")


def _issue(path: str, message: str) -> Issue:
    return Issue(path, "account", message)
