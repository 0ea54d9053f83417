"""Merges the manifest of a dataset with the manifest of a run that adds records to the dataset.

The added records come from new input, or from rejects of the dataset that were corrected and tried again (a replay).
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

    A replay moves records from rejected to written, or rejects them again, so the tried rejects are subtracted from the
    read and the rejected records.

    Args:
      base: the manifest of the dataset before.
      added: the manifest of the run that adds the records. Its inputs are already the merged ones (`merged_inputs`);
        all its other fields describe the added records alone.
      tried: in a replay, the number of rejects that were tried again; 0: the records are new input.

    Raises:
      MillraceError: the shards hold another number of records than was counted.
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
            # The warnings from when the transform was measured, and those about the records that were added last.
            "warnings": base.warnings if tried else (*base_warnings, *added.warnings),
            "appended": base.appended if tried else (*base.appended, added.run),
            "replayed": base.replayed + (added.written if tried else 0),
            "previous_files": base.files,
        }
    )


def merged_inputs(base: OpenDataset, added: Iterable[InputPart], *, tried: Sequence[Reject]) -> Iterator[InputPart]:
    """Yields the manifest's entries for the inputs of the dataset and the inputs of the new run.

    Each new file of rows is an input of its own. A dataset of images has one input, the listing of all images, so the
    old listing and the new one become one. A replay adds no input; it changes the counts of the old ones.

    Args:
      base: the dataset before.
      added: the entries for the inputs of the new run.
      tried: in a replay, the rejects that were tried again; empty: the records are new input.

    Raises:
      MillraceError: the records that an input has read are not all written or rejected.
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
    """Returns the number of inputs that `merged_inputs` yields. `added`: the number of inputs of the new run."""
    return base.number_of_inputs if tried or base.classes else base.number_of_inputs + added


def _merged_listing(before: InputPart, more: InputPart) -> InputPart:
    """Merges two listings of images to one. Its path is the patterns of both, separated by spaces."""
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
    """Yields the parts of the inputs with new counts: subtracts the tried rejects, and adds their new outcomes."""
    # Images are counted under their listing, which is then the only input. Rows are counted under their file.
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
    """Returns a part with new counts: the sum of `counts` minus the sum of `less`.

    Raises:
      MillraceError: a count is negative, or an input's records are not all written or rejected.
    """
    rows: collections.Counter[Count] = collections.Counter()
    # A Count with 0 rows serves as the key of its outcome, stage, split and reason.
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
