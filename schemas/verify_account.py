"""The counts of a manifest against each other, and against the rejects that the run keeps."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator

from schemas import layout, storage
from schemas.errors import MillraceError
from schemas.findings import Problem
from schemas.manifest import Manifest

_Reasons = collections.Counter[tuple[str, str]]  # rejects by stage and reason


def verify_account(manifest: Manifest) -> Iterator[Problem]:
    """Whether the manifest's numbers add up: by input, by split, by shard, and in all."""
    yield from _inputs(manifest)
    yield from _splits(manifest)
    for name in ("read", "written", "rejected"):
        total = sum(getattr(file, name) for file in manifest.inputs)
        if getattr(manifest, name) != total:
            yield _off(f"{name} is {getattr(manifest, name):,}, and the inputs' sum to {total:,}")


def _inputs(manifest: Manifest) -> Iterator[Problem]:
    by_outcome: collections.Counter[tuple[str, str]] = collections.Counter()
    for count in manifest.counts:
        by_outcome[count.input, count.outcome] += count.rows
    for file in manifest.inputs:
        lost = file.read - file.written - file.rejected
        if lost:
            yield _off(
                f"{file.path}: {file.read:,} records read, {file.written:,} written and {file.rejected:,} rejected: "
                f"{abs(lost):,} {'unaccounted for' if lost > 0 else 'too many'}"
            )
        for outcome, total in (("written", file.written), ("rejected", file.rejected)):
            counted = by_outcome.pop((file.path, outcome), 0)
            if counted != total:
                yield _off(f"{file.path}: {outcome} is {total:,}, and its counts sum to {counted:,}")
    for (path, outcome), rows in by_outcome.items():
        if rows:
            yield _off(f"{path}: {rows:,} records are counted as {outcome}, and it is no input of this data set")


def _splits(manifest: Manifest) -> Iterator[Problem]:
    by_split: collections.Counter[str] = collections.Counter()
    for count in manifest.counts:
        if count.split is not None:
            by_split[count.split] += count.rows
    for name, split in manifest.splits.items():
        in_shards = sum(shard.rows for shard in split.shards)
        if split.rows != in_shards:
            yield _off(f"split {name!r}: {split.rows:,} rows, and its shards' sum to {in_shards:,}")
        if split.rows != by_split[name]:
            yield _off(f"split {name!r}: {split.rows:,} rows, and {by_split[name]:,} are counted as written to it")
    for name in by_split.keys() - manifest.splits.keys():
        yield _off(f"split {name!r}: {by_split[name]:,} rows are counted as written to it, and it has no shards")


def verify_rejects(data_dir: str, manifest: Manifest) -> Iterator[Problem]:
    """Whether the run's rejects files hold as many rejects, by stage and reason, as the manifest counts."""
    kept: _Reasons = collections.Counter()
    prefix = layout.join(manifest.run, "rejects-")
    for file in manifest.files:
        if file.path.startswith(prefix):
            try:
                yield from _read(data_dir, file.path, kept)
            except MillraceError:
                return  # missing or unreadable, which is said elsewhere: the sums would only repeat it
    counted: _Reasons = collections.Counter()
    for count in manifest.counts:
        if count.outcome == "rejected":
            counted[count.stage or "", count.reason or ""] += count.rows
    for key in sorted(kept.keys() | counted.keys()):
        if kept[key] != counted[key]:
            yield Problem(
                f"{prefix}*.jsonl",
                "account",
                f"{kept[key]:,} rejects of stage {key[0]!r} and reason {key[1]!r}, and {layout.MANIFEST} counts "
                f"{counted[key]:,}",
            )


def _read(data_dir: str, path: str, kept: _Reasons) -> Iterator[Problem]:
    full = layout.join(data_dir, path)
    with storage.naming(full), storage.open_read(full) as file:
        for number, line in enumerate(file, 1):
            try:
                reject = json.loads(line)
                kept[reject["stage"], reject["reason"]] += 1
            except (ValueError, LookupError, TypeError) as error:
                yield Problem(path, "account", f"line {number:,} is no reject: {error}")


def _off(message: str) -> Problem:
    return Problem(layout.MANIFEST, "account", message)
