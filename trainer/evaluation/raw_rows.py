"""Which rows, transformed, are the stored records that are looked for: everything equal, floats to within rounding.

The same transform on another machine, or in another batch, may round the last digits of a float otherwise.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import Dataset
from schemas.dataset.input_files import read_inputs
from schemas.dataset.manifest import Input
from schemas.errors import MillraceError
from schemas.formats import row_format
from schemas.rows import RowFile, dense
from schemas.spec.table import OFFSET, SPLIT, SPLITS, raw_columns
from trainer.export.warmup import graph_values, opened_graph, strict_spec
from trainer.spec.transform_graph import transformed

TOLERANCE = 2e-6  # of a float, relative and absolute
SHOWN = 5  # places of one record
_KEPT = 32  # candidates of one record
_AT_ONCE = 1 << 20  # values that are compared at once

Values = Mapping[str, Any]  # by feature: an array `[rows, ...]`, or one array for each row where lengths vary


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a raw row is. `offset`: of its first byte; `row`: its index among the file's records; both from 0."""

    source: str
    offset: int
    row: int


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A raw row that gives a record. `distance`: the largest difference of a float; `raw`: its raw values."""

    distance: float
    place: Place
    raw: str


class Nearest:
    """The raw rows that give one record."""

    def __init__(self) -> None:
        self._best, self._ties = math.inf, 0
        self._kept: list[Candidate] = []

    def add(self, rows: np.ndarray, distances: np.ndarray, candidate: Callable[[int, float], Candidate]) -> None:
        """Takes in rows of a batch, int64 `[n]`, and their distances, float64 `[n]`; `candidate` gives one in full."""
        nearest = float(distances.min())
        if nearest < self._best:
            self._best, self._ties = nearest, 0
        self._ties += int((distances == self._best).sum())
        order = np.argsort(distances, kind="stable")[:_KEPT]
        farthest = self._kept[-1].distance if len(self._kept) == _KEPT else math.inf
        more = [candidate(int(rows[i]), float(distances[i])) for i in order if distances[i] < farthest]
        self._kept = sorted([*self._kept, *more], key=lambda c: c.distance)[:_KEPT]

    def places(self) -> tuple[list[Place], int]:
        """The first places of the rows that cannot be told apart, and how many such rows there are."""
        # A row with the raw values of the nearest one is no farther from the record, whatever rounding says.
        alike = [c.place for c in self._kept if c.distance == self._best or c.raw == self._kept[0].raw]
        return alike[:SHOWN], max(len(alike), self._ties)


def equal_pairs(wanted: Values, found: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of a wanted record and a row that agree in every feature of `wanted`.

    Returns:
      The records, the rows, int64 `[pairs]` each, and the largest difference of a float, float64 `[pairs]`.
    """
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    if not wanted or wanted.keys() - found.keys():
        return none
    records, rows = len(next(iter(wanted.values()))), len(found[next(iter(wanted))])
    wants, places = (array.ravel() for array in np.indices((records, rows)))
    dense = [name for name, values in wanted.items() if isinstance(values, np.ndarray)]
    if any(
        not isinstance(found[name], np.ndarray) or found[name].shape[1:] != wanted[name].shape[1:] for name in dense
    ):
        return none
    flat = {name: (wanted[name].reshape(records, -1), found[name].reshape(rows, -1)) for name in dense}
    for one, other in flat.values():  # by the first values alone few pairs are left
        agree, _ = _compared(one[wants, :1], other[places, :1])
        wants, places = wants[agree], places[agree]
    distances = np.zeros(len(wants))
    for one, other in flat.values():
        size = max(1, _AT_ONCE // max(1, one.shape[1]))
        parts = [
            _compared(one[wants[at : at + size]], other[places[at : at + size]]) for at in range(0, len(wants), size)
        ]
        if parts:
            agree, apart = (np.concatenate(part) for part in zip(*parts, strict=True))
            wants, places, distances = wants[agree], places[agree], np.maximum(distances, apart)[agree]
    for name in wanted.keys() - set(dense):
        agree = _agree_in_length_and_values(wanted[name], found[name], wants, places)
        wants, places, distances = wants[agree], places[agree], distances[agree]
    return wants, places, distances


def _agree_in_length_and_values(
    one: Sequence[np.ndarray], other: Sequence[np.ndarray], wants: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Which pairs agree in a feature whose number of values varies, bool `[pairs]`; all pairs at once."""
    lengths, others = (
        np.array([len(row) for row in rows], np.int64)[at] for rows, at in ((one, wants), (other, places))
    )
    agree: np.ndarray = lengths == others
    values, starts = _joined(one)
    other_values, other_starts = _joined(other)
    for k in range(int(lengths[agree].max(initial=0))):
        left = np.flatnonzero(agree & (lengths > k))
        if not len(left):
            break
        first, second = values[starts[wants[left]] + k], other_values[other_starts[places[left]] + k]
        agree[left], _ = _compared(first[:, np.newaxis], second[:, np.newaxis])
    return agree


def _joined(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The values of all rows, and where each row's begin."""
    return np.concatenate(rows), np.cumsum([0, *(len(row) for row in rows[:-1])])


def _compared(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether rows `[n, k]` agree, and the largest difference of their floats; both `[n]`."""
    same = one == other
    if one.dtype.kind != "f":
        return same.all(axis=1), np.zeros(len(one))
    same |= np.isnan(one) & np.isnan(other)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(one.astype(np.float64) - other))
        close = same | (np.isfinite(apart) & (apart <= TOLERANCE * (1 + np.abs(one))))
    return close.all(axis=1), apart.max(axis=1, initial=0.0)


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


MOST_BYTES = 256 << 20  # of inputs that are searched unasked: some seconds
_FILE_BYTES = 1 << 16  # opening a file takes about as long as reading so much
_GZIP = 8  # times that text shrinks, about
_RANGE_BYTES = 8 << 20
_BATCH = 4096  # rows that are transformed at once
_VALUES = 4 << 20  # and values: fewer rows where they are wide
_NAMED = 3  # files that a note names


@dataclasses.dataclass(frozen=True)
class Found:
    """Where records come from.

    Attributes:
      searched: whether the inputs were read.
      rows: of each record the first places of the raw rows that give it, and how many such rows there are.
      notes: what a reader of the places must know.
    """

    searched: bool
    rows: list[tuple[list[Place], int]]
    notes: list[str]


def find_rows(dataset: Dataset, split: str, records: Sequence[bytes], *, most_bytes: float = MOST_BYTES) -> Found:
    """Looks for the raw rows that records come from, in the dataset's inputs that gave the split any.

    Args:
      dataset: of rows.
      split: the records'.
      records: as they are stored.
      most_bytes: larger inputs are not read.
    """
    inputs = _inputs_of(dataset, split)
    if (size := sum(file.bytes + _FILE_BYTES for file in inputs)) > most_bytes:
        return _too_large(inputs, size)
    files, problems = _opened(dataset, inputs)
    if (size := sum((_GZIP if file.gzip else 1) * file.size + _FILE_BYTES for file in files)) > most_bytes:
        return _too_large(inputs, size)
    nearest = [Nearest() for _ in records]
    problems += _search(dataset, split, records, files, nearest)
    rows = [found.places() for found in nearest]
    lost = sum(not places for places, _ in rows)
    notes = [f"{_named(problems)}: what they held is not found."] if problems else []
    if lost:
        notes.append(f"{lost:,} of the {len(rows):,} rows were not found in the inputs.")
        changed = [f.path for f, old in _versions(files, inputs) if f.version != old.version]
        if changed:
            notes.append(f"{_named(changed)}: changed since the job read them, or copied.")
        if len(dataset.manifest.runs) > 1:
            notes.append("Records that a replay corrected are not in the inputs as they are stored.")
    return Found(True, rows, notes)


def _too_large(inputs: Sequence[Input], size: int) -> Found:
    text = f"{size / (1 << 30):,.1f} GB of text in {len(inputs):,} inputs"
    note = f"The inputs were not searched for these rows: they are large ({text}). With --search_inputs,"
    return Found(False, [], [f"{note} `millrace evaluate` does it."])


def _inputs_of(dataset: Dataset, split: str) -> list[Input]:
    found = []
    for part in read_inputs(dataset.path, dataset.manifest):
        gave = {c.input for c in part.counts if c.outcome == "written" and c.split == split}
        found += [file for file in part.inputs if file.path in gave]
    return found


def _opened(dataset: Dataset, inputs: Sequence[Input]) -> tuple[list[RowFile], list[str]]:
    """The inputs that are there and fit the schema; and which do not, and why."""
    files, problems, form = [], [], row_format(dataset.schema)
    for file in inputs:
        try:
            if not storage.exists(file.path):
                problems.append(f"{file.path}: is gone")
            else:
                ratio = MAX_INPUT_RATIO
                files.append(form.open_file(file.path, dataset.schema, label="required", max_input_ratio=ratio))
        except MillraceError as error:
            problems.append(str(error))
    return files, problems


def _search(
    dataset: Dataset, split: str, records: Sequence[bytes], files: Sequence[RowFile], nearest: Sequence[Nearest]
) -> list[str]:
    """Gives the rows of the files to the records that they give; returns what could not be read."""
    import tensorflow as tf
    import tensorflow_transform as tft
    from tfx_bsl.coders.example_coder import RecordBatchToExamples

    output = tft.TFTransformOutput(dataset.graphs_dir)
    comparable = (tf.io.FixedLenFeature, tf.io.VarLenFeature)
    spec = {n: entry for n, entry in output.transformed_feature_spec().items() if isinstance(entry, comparable)}
    wanted = graph_values(lambda serialized: tf.io.parse_example(serialized, spec), records)
    columns = raw_columns(dataset.schema)

    def stored(serialized: Any) -> dict[str, Any]:
        made = transformed(output, tf.io.parse_example(serialized, strict_spec(columns)))
        return {name: made[name] for name in spec}

    problems = []
    with opened_graph(stored) as values:
        for file in files:
            try:
                for rows in _raw_rows(dataset, split, file):
                    made = values(RecordBatchToExamples(rows.batch.select([c.name for c in columns])))
                    wants, places, distances = equal_pairs(wanted, made)
                    for record in np.unique(wants).tolist():
                        own = wants == record
                        nearest[record].add(places[own], distances[own], rows.candidate)
            except MillraceError as error:
                problems.append(str(error))
            except tf.errors.OpError as error:  # a function of one's own may refuse what stands in a changed file
                problems.append(f"{file.path}: the transform refuses a row ({error.message.splitlines()[0]})")
    return problems


@dataclasses.dataclass(frozen=True)
class _RawRows:
    """Raw rows of a file, with their offsets. `numbers`: their indices among its records, int64 `[rows]`."""

    path: str
    batch: pa.RecordBatch
    numbers: np.ndarray

    def candidate(self, i: int, distance: float) -> Candidate:
        (raw,) = self.batch.slice(i, 1).to_pylist()
        offset = raw.pop(OFFSET)
        return Candidate(distance, Place(self.path, offset, int(self.numbers[i])), repr(raw))


def _raw_rows(dataset: Dataset, split: str, file: RowFile) -> Iterator[_RawRows]:
    """The rows of a file that are in a split."""
    schema, wanted, before = dataset.schema, SPLITS.index(split), 0
    form = row_format(schema)
    size = max(1, min(_BATCH, _VALUES // sum(column.width or 1 for column in raw_columns(schema))))
    for part in form.plan_ranges(file, range_bytes=_RANGE_BYTES):
        for decoded in form.read_range(part, schema, with_split=True):
            numbers = before + decoded.numbers()
            before += decoded.read
            places = np.flatnonzero(np.asarray(decoded.batch.column(SPLIT)) == wanted)
            for start in range(0, len(places), size):
                some = places[start : start + size]
                yield _RawRows(file.path, decoded.batch.take(pa.array(some)), numbers[some])


def _versions(files: Sequence[RowFile], inputs: Sequence[Input]) -> Iterator[tuple[RowFile, Input]]:
    old = {file.path: file for file in inputs}
    return ((file, old[file.path]) for file in files)


def _named(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more:,} more" if more > 0 else "")
