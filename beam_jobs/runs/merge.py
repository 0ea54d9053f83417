"""The manifest of a dataset with more records, from the one before and that of what was added.

What is added is new input, or rejects of the dataset that were corrected and tried again.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

from beam_jobs.runs.data_warnings import DRIFT, UNSEEN_VALUES
from schemas.dataset import OpenDataset
from schemas.dataset.manifest import Count, Input, InputPart, Manifest, SplitShards, read_inputs
from schemas.errors import MillraceError
from schemas.rejects import Reject

OF_ADDED = frozenset({UNSEEN_VALUES, DRIFT})  # the codes of warnings about added records


def merged_manifest(base: Manifest, added: Manifest, *, tried: int) -> Manifest:
    """Returns the manifest of the dataset with the added records.

    Args:
      base: the manifest before.
      added: that of the run that adds them: its inputs are those of `merged_inputs`, all else is of the records alone.
      tried: how many rejects of the dataset the records are; 0: they are new input.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    splits = dict(base.splits)
    for name in splits.keys() & added.splits.keys():
        old, new = splits[name], added.splits[name]
        splits[name] = SplitShards(rows=old.rows + new.rows, shards=old.shards + new.shards)
    rows, written = sum(split.rows for split in splits.values()), base.written + added.written
    if rows != written:
        raise MillraceError(
            f"{rows:,} records in the shards, {written:,} counted. This is a bug; nothing was committed."
        )
    base_warnings = tuple(warning for warning in base.warnings if warning.code not in OF_ADDED)
    return added.model_copy(
        update={
            "classes": base.classes,
            "splits": splits,
            "read": base.read + added.read - tried,
            "written": written,
            "rejected": base.rejected + added.rejected - tried,
            "transform_from": base.transform_from or base.run,
            "preprocessing_fn": base.preprocessing_fn,
            # What was warned of when the transform was measured, and what is to be said of the records added last.
            "warnings": base.warnings if tried else (*base_warnings, *added.warnings),
            "appended": base.appended if tried else (*base.appended, added.run),
            "replayed": base.replayed + (added.written if tried else 0),
            "previous_files": base.files,
        }
    )


def merged_inputs(base: OpenDataset, added: Iterable[InputPart], *, tried: Sequence[Reject]) -> Iterator[InputPart]:
    """Yields the entries of the dataset's inputs, and of the inputs that were read now.

    New files of rows are inputs each. Images are counted under the one listing that names them all, which grows.

    Args:
      base: the dataset before.
      added: the entries of what was read now.
      tried: the rejects of the dataset that were tried again; they count as what they are now.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    parts = read_inputs(base.path, base.manifest)
    if tried:
        yield from _tried_again(base.manifest, parts, added, tried)
    elif base.manifest.classes:
        (before,), (more,) = parts, added
        yield _merged_listing(before, more)
    else:
        yield from parts
        yield from added


def count_inputs(base: Manifest, added: int, *, tried: bool) -> int:
    """Returns how many inputs `merged_inputs` yields."""
    return base.number_of_inputs if tried or base.classes else base.number_of_inputs + added


def _merged_listing(before: InputPart, more: InputPart) -> InputPart:
    """Two listings of images as one, which is named by the patterns of both."""
    (old,), (new,) = before.inputs, more.inputs
    names = old.path.split(" ")
    path = " ".join([*names, *(name for name in new.path.split(" ") if name not in names)])
    version = hashlib.sha256(f"{old.version} {new.version}".encode()).hexdigest()
    both = Input(
        path=path, bytes=old.bytes + new.bytes, version=version, read=old.read + new.read, written=0, rejected=0
    )
    counts = (count.model_copy(update={"input": path}) for count in (*before.counts, *more.counts))
    return _counted(InputPart(inputs=(both,), counts=()), counts, ())


def _tried_again(
    base: Manifest, parts: Iterable[InputPart], added: Iterable[InputPart], tried: Iterable[Reject]
) -> Iterator[InputPart]:
    """The inputs with the records of a replay moved from rejected to what became of them."""
    # Images are all counted under the one listing that names them, and rows under the file that they stand in.
    sole = base.inputs[0].path if base.number_of_inputs == 1 else None
    gone, more = collections.defaultdict[str, list[Count]](list), collections.defaultdict[str, list[Count]](list)
    for reject in tried:
        path = sole or reject.source
        gone[path].append(Count(input=path, outcome="rejected", stage=reject.stage, reason=reject.reason, rows=1))
    for count in itertools.chain.from_iterable(part.counts for part in added):
        more[count.input].append(count)
    for part in parts:
        counts, less = list(part.counts), list[Count]()
        for file in part.inputs:
            counts += more.get(file.path, ())
            less += gone.get(file.path, ())
        yield _counted(part, counts, less)


def _counted(part: InputPart, counts: Iterable[Count], less: Iterable[Count]) -> InputPart:
    """The inputs of a part with other counts: `counts` without `less`.

    Raises:
      MillraceError: a record is unaccounted for.
    """
    rows: collections.Counter[Count] = collections.Counter()
    for sign, terms in ((1, counts), (-1, less)):
        for count in terms:
            rows[count.model_copy(update={"rows": 0})] += sign * count.rows
    by_input: collections.Counter[tuple[str, str]] = collections.Counter()
    for kind, n in rows.items():
        by_input[kind.input, kind.outcome] += n
    inputs = tuple(
        file.model_copy(update={"written": by_input[file.path, "written"], "rejected": by_input[file.path, "rejected"]})
        for file in part.inputs
    )
    negative = min(rows.values(), default=0) < 0
    for file in inputs:
        if negative or file.read != file.written + file.rejected:
            raise MillraceError(
                f"{file.path}: {file.read:,} records read, but {file.written:,} written and {file.rejected:,} rejected "
                "with those added. This is a bug; nothing was committed."
            )
    kinds = sorted(rows, key=lambda kind: (kind.input, kind.stage or "", kind.split or "", kind.reason or ""))
    return part.model_copy(
        update={
            "inputs": inputs,
            "counts": tuple(kind.model_copy(update={"rows": rows[kind]}) for kind in kinds if rows[kind]),
        }
    )
