"""The raw rows of a dataset's split, read again from its inputs: what two exports of any age can both be scored on.

The stored records will not do: they went through one transform, and only models of that transform take them. The raw
rows are found by the schema's own split, which puts a row where the job has put it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import Dataset
from schemas.dataset.input_files import read_inputs
from schemas.errors import MillraceError
from schemas.formats import row_format
from schemas.rows import RowFile, dense
from schemas.spec.table import SPLIT, SPLITS, raw_columns

RANGE_BYTES = 8 << 20
BATCH = 4096
MOST_ROWS = 1 << 20  # that are scored: of more, a random sample


@dataclasses.dataclass(frozen=True)
class RawBatch:
    """Raw rows of a split.

    Attributes:
      columns: by feature, float32 or `bytes` objects, `[rows]` or `[rows, width]`, as a served model takes them.
      labels: `bytes` objects `[rows]`, or float32.
      weights: float64 `[rows]`; None: each row counts 1.
    """

    columns: Mapping[str, np.ndarray]
    labels: np.ndarray
    weights: np.ndarray | None


@dataclasses.dataclass
class EvalRows:
    """The raw rows of one split.

    Attributes:
      split: its name.
      expected: how many rows the dataset has in it; None where other files were given.
      read: how many were read so far.
      notes: what was left out and why, for people.
    """

    dataset: Dataset
    split: str
    files: Sequence[tuple[str, int | None]]  # each file, and how many of its records are in the split
    expected: int | None
    read: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def batches(self) -> Iterator[RawBatch]:
        """Reads all rows.

        Raises:
          MillraceError: a file cannot be read, or holds other rows than the job found there.
        """
        total = self.expected or 0
        keep = 1.0 if total <= MOST_ROWS else MOST_ROWS / total
        if keep < 1:
            self.notes.append(f"{MOST_ROWS:,} of {total:,} rows were scored, a random sample")
        chosen = np.random.default_rng(0)
        for path, rows in self.files:
            found = 0
            for whole in self._read(path):
                found += len(whole.labels)
                batch = whole
                if keep < 1:
                    batch = _taken(whole, np.flatnonzero(chosen.random(len(whole.labels)) < keep))
                if len(batch.labels):
                    self.read += len(batch.labels)
                    yield batch
            if rows is not None and found < rows:
                raise MillraceError(
                    f"{path}: holds {found:,} rows of the split {self.split!r}, but {self.dataset.path} was written "
                    f"with {rows:,}: the file has changed since. Restore it, append its rows, or give --eval_input."
                )

    def _read(self, path: str) -> Iterator[RawBatch]:
        schema = self.dataset.schema
        rows = row_format(schema)
        file: RowFile = rows.open_file(path, schema, label="required", max_input_ratio=MAX_INPUT_RATIO)
        wanted = SPLITS.index(self.split)
        for part in rows.plan_ranges(file, range_bytes=RANGE_BYTES):
            for decoded in rows.read_range(part, schema, with_split=True):
                batch = decoded.batch
                places = np.flatnonzero(np.asarray(batch.column(SPLIT)) == wanted)
                for start in range(0, len(places), BATCH):
                    some = batch.take(places[start : start + BATCH])
                    columns = {c.name: dense(some.column(c.name), c) for c in raw_columns(schema)}
                    labels = columns.pop(schema.label.name)
                    weights = columns.pop(schema.weight.name).astype(np.float64) if schema.weight else None
                    yield RawBatch(columns, labels.reshape(-1), weights)


def eval_rows(dataset: Dataset, split: str, inputs: Sequence[str] = ()) -> EvalRows:
    """Finds the files that hold the raw rows of a split.

    Args:
      dataset: whose inputs are read.
      split: its name.
      inputs: files or patterns to read in place of the dataset's inputs.

    Raises:
      UsageError: there are no such files.
      MillraceError: none of its inputs is there any more.
    """
    if inputs:
        return EvalRows(dataset, split, [(path, None) for path in storage.expand(tuple(inputs))], None)
    expected, gone, lost = dataset.rows(split), [], 0
    files: list[tuple[str, int | None]] = []
    for part in read_inputs(dataset.path, dataset.manifest):
        rows: collections.Counter[str] = collections.Counter()
        for count in part.counts:
            if count.outcome == "written" and count.split == split:
                rows[count.input] += count.rows
        for file in part.inputs:
            if not rows[file.path]:
                continue
            if storage.exists(file.path) and storage.stat(file.path).size == file.bytes:
                files.append((file.path, rows[file.path]))
            else:
                gone.append(file.path)
                lost += rows[file.path]
    few = "and the few records that a dataset keeps as they were read (parity/) are too few to compare models by"
    if not files:
        raise MillraceError(
            f"{dataset.path}: none of the {len(gone):,} inputs with rows of the split {split!r} is as it was when it "
            f"was read ({_some(gone)}), {few}. Restore the files, or give --eval_input FILE: files of raw rows, of "
            "which those are scored that the schema's split puts there"
        )
    found = EvalRows(dataset, split, files, expected)
    if gone:
        found.notes.append(
            f"{lost:,} of the {expected:,} rows of the split {split!r} were not scored: {len(gone):,} inputs are gone "
            f"or have changed ({_some(gone)}), {few}"
        )
    return found


def _taken(batch: RawBatch, places: np.ndarray) -> RawBatch:
    weights = None if batch.weights is None else batch.weights[places]
    columns = {name: values[places] for name, values in batch.columns.items()}
    return RawBatch(columns, batch.labels[places], weights)


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
