"""A dataset with more records: its manifest, worked out from the one before and from that of the added records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from schemas.dataset import Dataset
from schemas.dataset.input_files import InputPart, read_inputs
from schemas.dataset.manifest import Count, DataWarning, Input, Manifest, Split
from schemas.errors import MillraceError


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
