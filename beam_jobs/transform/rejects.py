"""Finds rejects of the transform: rows of a class that the train split lacks, or with a value that is not finite.

The transform does not see a row's raw bytes. Its rejects are written without them at once, so that a failed job keeps
them too. Their bytes are read from the input at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.core.accounting import FILE, passthrough
from schemas import storage
from schemas.rejects import Reject, read_rejects
from schemas.spec.table import NOT_FINITE, OFFSET, SPLIT, SPLITS

PHASE = "transformed"  # in the name of a file of rejects without raw bytes

RawBytes = Callable[[Sequence[Reject]], list[bytes]]  # of each reject, from the input


@dataclasses.dataclass(frozen=True)
class Outputs:
    """How messages describe the transform's outputs.

    Attributes:
      label: the output that is the label.
      columns: the columns that each output is read from. An output that is not listed is called by its own name.
      hints: by output, the likely cause of values that are not finite, which ends the message.
      measured: the dataset whose transform is applied, if it is another one.
    """

    label: str
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    hints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    measured: str = ""


def find(batch: pa.RecordBatch, outputs: Outputs, path_of: Callable[[int], str]) -> dict[int, Reject]:
    """Finds the rows of a transformed batch that are rejects, without raw bytes. `path_of`: the input with a key."""
    files, offsets = passthrough(batch, FILE), passthrough(batch, OFFSET)
    rejects: dict[int, Reject] = {}

    def add(row: int, reason: str, column: str | None, detail: str) -> None:
        rejects.setdefault(
            row, Reject(path_of(int(files[row])), int(offsets[row]), "transform", reason, column, detail, b"")
        )

    for row in np.flatnonzero(_without_class(batch, outputs.label)).tolist():
        split = SPLITS[int(passthrough(batch, SPLIT)[row])]
        other = f" of {outputs.measured}, whose transform is applied" if outputs.measured else ""
        detail = f"the label of this row of the {split} split occurs in no row of the train split{other}"
        add(row, "label_not_in_vocabulary", next(iter(outputs.columns.get(outputs.label, ())), None), detail)
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        for row, place, value in _not_finite(values):
            read_from = outputs.columns.get(name, ())
            what = "this value" if read_from else "this row's values"
            column = read_from[min(place, len(read_from) - 1)] if read_from else name
            add(row, NOT_FINITE, column, f"the transform makes {value} of {what}{outputs.hints.get(name, '')}")
    return rejects


def _without_class(batch: pa.RecordBatch, label: str) -> np.ndarray:
    """Which rows have the class id -1: a class that the train split does not hold. bool `[rows]`."""
    values = batch.column(batch.schema.get_field_index(label)).flatten()
    if not pa.types.is_integer(values.type):
        return np.zeros(batch.num_rows, bool)
    return np.asarray(values) < 0


def _not_finite(column: pa.Array) -> Iterable[tuple[int, int, float]]:
    """(row, place in the row, value) of the first value of each row that is not finite."""
    if not pa.types.is_floating(column.type.value_type):
        return
    values = np.asarray(column.flatten())
    finite = np.isfinite(values)
    if finite.all():
        return
    parents = np.asarray(pc.list_parent_indices(column))
    bad = np.flatnonzero(~finite)
    rows, first = np.unique(parents[bad], return_index=True)
    for row, i in zip(rows.tolist(), bad[first].tolist(), strict=True):
        yield row, i - int(np.searchsorted(parents, row)), float(values[i])


def with_raw_bytes(paths: Iterable[str], raw_bytes: RawBytes) -> list[Reject]:
    """Reads files of rejects without raw bytes, and adds the bytes; sorted by place."""
    rejects_by_place = {(r.source, r.offset): r for path in paths for r in read_rejects(storage.read_bytes(path))}
    rejects = [rejects_by_place[place] for place in sorted(rejects_by_place)]
    return [dataclasses.replace(r, raw=raw) for r, raw in zip(rejects, raw_bytes(rejects), strict=True)]
