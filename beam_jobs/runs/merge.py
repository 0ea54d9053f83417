"""The manifest of a dataset with more records, from the one before and that of what was added."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from beam_jobs.output.existing import Key
from schemas.dataset import Dataset
from schemas.dataset.input_files import InputPart, ListedInputs, read_inputs
from schemas.dataset.manifest import Count, DataWarning, Input, Manifest, Split
from schemas.errors import MillraceError
from schemas.rejects import Reject


def joined_split(old: Split, new: Split | None) -> Split:
    """The old shards, and the new ones behind them."""
    return old if new is None else Split(rows=old.rows + new.rows, shards=old.shards + new.shards)


def joined_inputs(base: Dataset, added: Iterable[InputPart]) -> Iterator[InputPart]:
    """The entries of the dataset's inputs, and of those that are added.

    Files of rows are inputs each. Images are counted under the one listing that names them all, which grows.
    """
    if not base.manifest.classes:
        yield from read_inputs(base.path, base.manifest)
        yield from added
        return
    (before,) = read_inputs(base.path, base.manifest)
    (more,) = added
    yield joined_listing(before, more)


def count_inputs(base: Manifest, added: int) -> int:
    """How many inputs `joined_inputs` yields."""
    return 1 if base.classes else base.number_of_inputs + added


def joined_listing(before: InputPart, more: InputPart) -> InputPart:
    """Two listings of images as one, which is named by the patterns of both."""
    (old,), (new,) = before.inputs, more.inputs
    names = old.path.split(" ")
    path = " ".join([*names, *(name for name in new.path.split(" ") if name not in names)])
    both = Input(
        path=path,
        bytes=old.bytes + new.bytes,
        version=hashlib.sha256(f"{old.version} {new.version}".encode()).hexdigest(),
        read=old.read + new.read,
        written=old.written + new.written,
        rejected=old.rejected + new.rejected,
    )
    counts: dict[Count, int] = {}
    for count in (*before.counts, *more.counts):
        kind = count.model_copy(update={"input": path, "rows": 0})
        counts[kind] = counts.get(kind, 0) + count.rows
    order = sorted(counts, key=lambda kind: (kind.stage or "", kind.split or "", kind.reason or ""))
    return InputPart(inputs=(both,), counts=tuple(kind.model_copy(update={"rows": counts[kind]}) for kind in order))


def joined_manifest(base: Manifest, added: Manifest) -> Manifest:
    """The manifest of the dataset with the added records.

    Args:
      base: the manifest before.
      added: that of the run that adds them: its inputs are those of `joined_inputs`, all else is of the records alone.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    splits = {name: joined_split(split, added.splits.get(name)) for name, split in base.splits.items()}
    written = base.written + added.written
    if sum(split.rows for split in splits.values()) != written:
        raise MillraceError(
            f"{sum(split.rows for split in splits.values()):,} records in the shards, {written:,} counted. "
            "This is a bug; nothing was committed."
        )
    return added.model_copy(
        update={
            "classes": base.classes,
            "splits": splits,
            "read": base.read + added.read,
            "written": written,
            "rejected": base.rejected + added.rejected,
            "transform_from": base.transform_from or base.run,
            "preprocessing_fn": base.preprocessing_fn,
            "finite": base.finite,
            "warnings": joined_warnings(base.warnings, added.warnings),
            "appended": (*base.appended, added.run),
            "analyzed": base.analyzed | added.analyzed,
            "previous_files": base.files,
        }
    )


def joined_warnings(old: Sequence[DataWarning], new: Sequence[DataWarning]) -> tuple[DataWarning, ...]:
    """What was warned of when the transform was measured, and what is to be said of the records added last."""
    return (*(warning for warning in old if warning.code not in OF_ADDED), *new)


UNSEEN, DRIFT = "unseen_values", "drift"
OF_ADDED = frozenset({UNSEEN, DRIFT})  # the codes of warnings about added records


@dataclasses.dataclass(frozen=True)
class Added:
    """What a replay wrote, and what it did not.

    splits: the new shards by split, by path relative to the dataset directory; only splits that got some.
    written: how many records, by input and split.
    rejects: all that the dataset rejects now.
    """

    splits: Mapping[str, Split]
    written: Mapping[tuple[str, str], int]
    rejects: Sequence[Reject]


def still_rejects(before: Mapping[Key, Reject], tried: Sequence[Key], again: Sequence[Reject]) -> list[Reject]:
    """The dataset's rejects after a replay, by place: what was not tried, as it was, and what was rejected again."""
    gone = frozenset(tried)
    left = {key: reject for key, reject in before.items() if key not in gone}
    left |= {(reject.source, reject.offset): reject for reject in again}
    return [left[key] for key in sorted(left)]


def appended_inputs(base: Manifest, parts: Iterable[InputPart], added: Added) -> Iterator[InputPart]:
    """The entries of the inputs of `base`, with the added records moved from rejected to written.

    Args:
      base: the manifest.
      parts: its inputs.
      added: what a replay wrote.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    # Images are all counted under the one listing that names them, and rows under the file that they stand in.
    sole = base.inputs[0].path if base.number_of_inputs == 1 else None
    rejected: dict[str, collections.Counter[Count]] = collections.defaultdict(collections.Counter)
    for reject in added.rejects:
        source = sole or reject.source
        rejected[source][Count(input=source, outcome="rejected", stage=reject.stage, reason=reject.reason, rows=0)] += 1
    written: dict[str, collections.Counter[Count]] = collections.defaultdict(collections.Counter)
    for (source, split), rows in added.written.items():
        written[source][Count(input=source, outcome="written", split=split, rows=0)] += rows
    for part in parts:
        counts: collections.Counter[Count] = collections.Counter()
        for count in part.counts:
            if count.outcome == "written":
                counts[_kind(count)] += count.rows
        for file in part.inputs:
            for some in (rejected, written):
                counts.update(some.get(file.path, {}))
        by_input: dict[tuple[str, str], int] = collections.Counter()
        for kind, rows in counts.items():
            by_input[kind.input, kind.outcome] += rows
        inputs = tuple(
            file.model_copy(
                update={"written": by_input[file.path, "written"], "rejected": by_input[file.path, "rejected"]}
            )
            for file in part.inputs
        )
        check(inputs)
        order = sorted(counts.items(), key=lambda item: _order(item[0]))
        yield part.model_copy(
            update={
                "inputs": inputs,
                "counts": tuple(kind.model_copy(update={"rows": rows}) for kind, rows in order if rows),
            }
        )


def appended(base: Manifest, listed: ListedInputs, added: Added) -> Manifest:
    """`base` with the added shards, and inputs as `appended_inputs` yields them. Run, files and times are the old ones.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    splits = {name: joined_split(split, added.splits.get(name)) for name, split in base.splits.items()}
    rows = sum(split.rows for split in splits.values())
    written = base.written + sum(added.written.values())
    if rows != written:
        raise MillraceError(
            f"{rows:,} records in the shards, {written:,} counted. This is a bug; nothing was committed."
        )
    return base.model_copy(
        update={
            "inputs": listed.inputs,
            "headers": listed.headers,
            "input_files": listed.files,
            "input_count": listed.count,
            "totals": listed.totals,
            "splits": splits,
            "counts": listed.counts,
            "written": written,
            "rejected": len(added.rejects),
        }
    )


def check(inputs: Sequence[Input]) -> None:
    """Refuses numbers that do not add up.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    for file in inputs:
        if file.read != file.written + file.rejected:
            raise MillraceError(
                f"{file.path}: {file.read:,} records read, but {file.written:,} written and {file.rejected:,} rejected "
                "after the replay. This is a bug; nothing was committed."
            )


def _kind(count: Count) -> Count:
    return count.model_copy(update={"rows": 0})


def _order(count: Count) -> tuple[str, ...]:
    return (count.input, count.stage or "", count.split or "", count.reason or "")
