"""The raw rows of a dataset's split, read again from its inputs.

`eval_rows`: what two exports of any age can both be scored on. The stored records will not do: they went through one
transform, and only models of that transform take them. The schema's own split puts a row where the job has put it.

`find_rows`: where stored records come from. A record does not hold its place. A row whose values the dataset's own
transform turns to those of the record, in the same split, is one that it can come from: everything equal, floats to
within rounding, which may differ on another machine or in another batch. No place is told that was not compared.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import Dataset
from schemas.dataset.manifest import Input, read_inputs
from schemas.errors import MillraceError, counted
from schemas.exports.rows import RowBatch, read_batches
from schemas.formats import row_format
from schemas.rows import RowFile, dense
from schemas.spec.table import OFFSET, raw_columns
from trainer.export.warmup import RawTransform, graph_values

TOLERANCE = 2e-6  # of a float, relative and absolute
SHOWN = 5  # places of one record
_KEPT = 32  # candidates of one record

Values = Mapping[str, Any]  # by feature


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


def matches(record: Values, found: Values) -> tuple[np.ndarray, np.ndarray]:
    """The rows that agree with a record in every feature of it, and how far each is from it.

    Args:
      record: the values of a record by feature.
      found: those of rows: an array `[rows, ...]`, or one array for each row where lengths vary.

    Returns:
      The rows, int64 `[n]`, and the largest difference of a float, float64 `[n]`.
    """
    total = len(next(iter(found.values()), ()))
    rows, distances = np.arange(total), np.zeros(total)
    if record.keys() - found.keys():
        return rows[:0], distances[:0]
    # By single values alone few rows are left.
    for name in sorted(record, key=lambda name: (isinstance(found[name], list), np.size(record[name]))):
        values = found[name]
        value = np.ravel(np.asarray(record[name], getattr(values, "dtype", None)))
        if isinstance(values, np.ndarray):
            if math.prod(values.shape[1:]) != value.size:
                return rows[:0], distances[:0]
            others = values[rows]
        else:
            alike = [i for i, row in enumerate(rows) if len(values[row]) == value.size]
            rows, distances = rows[alike], distances[alike]
            others = np.array([values[row] for row in rows], value.dtype)
        agree, apart = _compared(value, others.reshape(len(rows), value.size))
        rows, distances = rows[agree], np.maximum(distances, apart)[agree]
    return rows, distances


def _compared(value: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether rows `[n, k]` agree with a value `[k]`, and the largest difference of their floats; both `[n]`."""
    same = value == others
    if value.dtype.kind != "f":
        return same.all(axis=1), np.zeros(len(others))
    same |= np.isnan(value) & np.isnan(others)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(value.astype(np.float64) - others))
        close = same | (np.isfinite(apart) & (apart <= TOLERANCE * (1 + np.abs(value))))
    return close.all(axis=1), apart.max(axis=1, initial=0.0)


BATCH = 4096
MOST_ROWS = 1 << 20  # that are scored: of more, a random sample


@dataclasses.dataclass(frozen=True)
class RawBatch:
    """Raw rows of a split, or images.

    Attributes:
      columns: by feature or image, float32 or `bytes` objects, `[rows]` or `[rows, width]`, as a served model takes
        them.
      labels: `bytes` objects `[rows]`, or float32.
      weights: float64 `[rows]`; None: each row counts 1.
    """

    columns: Mapping[str, np.ndarray]
    labels: np.ndarray
    weights: np.ndarray | None = None

    def take(self, places: np.ndarray) -> RawBatch:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[places]
        columns = {name: values[places] for name, values in self.columns.items()}
        return RawBatch(columns, self.labels[places], weights)


@dataclasses.dataclass
class EvalRows:
    """The raw rows of one split, or its images or pairs of images.

    Attributes:
      split: its name.
      expected: how many rows the dataset has in it; None where other files were given.
      source: reads them all, and adds to the notes.
      read: how many were read so far.
      notes: what was left out and why, for people.
    """

    dataset: Dataset
    split: str
    expected: int | None
    source: Callable[[EvalRows], Iterator[RawBatch]]
    read: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def batches(self) -> Iterator[RawBatch]:
        """Reads all rows.

        Raises:
          MillraceError: a file cannot be read, or holds other rows than the job found there, or no image is there.
        """
        for batch in self.source(self):
            self.read += len(batch.labels)
            yield batch


def _row_batches(files: Sequence[tuple[str, int | None]], rows: EvalRows) -> Iterator[RawBatch]:
    """Reads files of rows, each with how many of its records are in the split."""
    dataset, split, total = rows.dataset, rows.split, rows.expected or 0
    columns = raw_columns(dataset.schema)
    label, weight = dataset.schema.label.name, dataset.schema.weight
    keep = 1.0 if total <= MOST_ROWS else MOST_ROWS / total
    if keep < 1:
        rows.notes.append(f"{MOST_ROWS:,} of {total:,} rows were scored, a random sample")
    chosen = np.random.default_rng(0)
    for path, expected in files:
        found = 0
        for part in read_batches([_open(dataset, path)], dataset.schema, BATCH, split=split):
            if not part.batch.num_rows:
                continue
            found += part.batch.num_rows
            values = {c.name: dense(part.batch.column(c.name), c) for c in columns}
            labels = values.pop(label).reshape(-1)
            batch = RawBatch(values, labels, values.pop(weight.name).astype(np.float64) if weight else None)
            if keep < 1:
                batch = batch.take(np.flatnonzero(chosen.random(len(labels)) < keep))
            if len(batch.labels):
                yield batch
        if expected is not None and found < expected:
            raise MillraceError(
                f"{path}: holds {found:,} rows of the split {split!r}, but {dataset.path} was written "
                f"with {expected:,}: the file has changed since. Restore it, append its rows, or give --eval_input."
            )


def _open(dataset: Dataset, path: str) -> RowFile:
    form = row_format(dataset.schema)
    return form.open_file(path, dataset.schema, label="required", max_input_ratio=MAX_INPUT_RATIO)


def inputs_of(dataset: Dataset, split: str) -> Iterator[tuple[Input, int]]:
    """The inputs that gave a split rows, and how many each gave."""
    for part in read_inputs(dataset.path, dataset.manifest):
        rows: collections.Counter[str] = collections.Counter()
        for count in part.counts:
            if count.outcome == "written" and count.split == split:
                rows[count.input] += count.rows
        yield from ((file, rows[file.path]) for file in part.inputs if rows[file.path])


def places_of(path: str, dataset: Dataset) -> Iterator[str]:
    """Where an input may be: a relative path is that of a file below this folder, or below one that the dataset is in.

    Args:
      path: as the job was given it, or a pattern.
      dataset: that was read from it.
    """
    yield path
    if storage.is_local(path) and storage.is_local(dataset.path) and not os.path.isabs(path):
        for folder in Path(dataset.path).resolve().parents:
            yield str(folder / path)


def located(file: Input, dataset: Dataset) -> str | None:
    """Where an input of a dataset is now; None if no file of its size is there."""
    for path in places_of(file.path, dataset):
        if storage.exists(path) and storage.stat(path).size == file.bytes:
            return path
    return None


def eval_rows(dataset: Dataset, split: str, inputs: Sequence[str]) -> EvalRows:
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
        given = [(path, None) for path in storage.expand(tuple(inputs))]
        return EvalRows(dataset, split, None, functools.partial(_row_batches, given))
    expected, gone, lost = dataset.rows(split), [], 0
    files = []
    for file, rows in inputs_of(dataset, split):
        if (path := located(file, dataset)) is not None:
            files.append((path, rows))
        else:
            gone.append(file.path)
            lost += rows
    few = "and the few records that a dataset keeps as they were read (parity/) are too few to compare models by"
    if not files:
        raise MillraceError(
            f"{dataset.path}: none of {counted(len(gone), 'inputs')} with rows of the split {split!r} is as it was "
            f"when it was read ({_some(gone)}), {few}. Restore the files, or give --eval_input FILE: files of raw "
            "rows, of which those are scored that the schema's split puts there"
        )
    found = EvalRows(dataset, split, expected, functools.partial(_row_batches, files))
    if gone:
        found.notes.append(
            f"{lost:,} of the {counted(expected, 'rows')} of the split {split!r} not scored, for lack of "
            f"{counted(len(gone), 'inputs')}, gone or changed since ({_some(gone)}), {few}"
        )
    return found


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")


MOST_BYTES = 256 << 20  # of inputs that are searched unasked: some seconds
_FILE_BYTES = 1 << 16  # opening a file takes about as long as reading so much
_GZIP = 8  # times that text shrinks, about
_VALUES = 4 << 20  # that are transformed at once, of up to `BATCH` rows
_NAMED = 3  # files that a note names


@dataclasses.dataclass(frozen=True)
class Found:
    """Where records come from.

    Attributes:
      rows: of each record the first places of the raw rows that give it, and how many such rows there are; none where
        the inputs were not read.
      notes: what a reader of the places must know.
    """

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
    inputs = [file for file, _ in inputs_of(dataset, split)]
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
        notes.append(f"not found in the inputs: {lost:,} of {counted(len(rows), 'rows')}.")
        versions = {file.version for file in inputs}
        changed = [file.path for file in files if file.version not in versions]
        if changed:
            notes.append(f"{_named(changed)}: changed since the job read them, or copied.")
        if len(dataset.manifest.runs) > 1:
            notes.append("Records that a replay corrected are not in the inputs as they are stored.")
    return Found(rows, notes)


def _too_large(inputs: Sequence[Input], size: int) -> Found:
    text = f"{size / (1 << 30):,.1f} GB of text in {counted(len(inputs), 'inputs')}"
    note = f"The inputs were not searched for these rows: they are large ({text}). With --search_inputs,"
    return Found([], [f"{note} `millrace evaluate` does it."])


def _opened(dataset: Dataset, inputs: Sequence[Input]) -> tuple[list[RowFile], list[str]]:
    """The inputs that are there and fit the schema; and which do not, and why."""
    files, problems = [], []
    for file in inputs:
        try:
            path = located(file, dataset) or file.path
            if not storage.exists(path):
                problems.append(f"{file.path}: is gone")
            else:
                files.append(_open(dataset, path))
        except MillraceError as error:
            problems.append(str(error))
    return files, problems


def _search(
    dataset: Dataset, split: str, records: Sequence[bytes], files: Sequence[RowFile], nearest: Sequence[Nearest]
) -> list[str]:
    """Gives the rows of the files to the records that they give; returns what could not be read."""
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamples

    from trainer.data.input_fn import stored_spec

    comparable = (tf.io.FixedLenFeature, tf.io.VarLenFeature)
    spec = {name: entry for name, entry in stored_spec(dataset).items() if isinstance(entry, comparable)}
    wanted = graph_values(lambda serialized: tf.io.parse_example(serialized, spec), records)
    columns = raw_columns(dataset.schema)

    problems = []
    size = max(1, min(BATCH, _VALUES // sum(column.width or 1 for column in columns)))
    with RawTransform(dataset) as values:
        for file in files:
            try:
                for found in read_batches([file], dataset.schema, size, split=split):
                    if not found.batch.num_rows:
                        continue
                    made = values(RecordBatchToExamples(found.batch.select([c.name for c in columns])))
                    for i, own in enumerate(nearest):
                        places, distances = matches({name: each[i] for name, each in wanted.items()}, made)
                        if len(places):
                            own.add(places, distances, functools.partial(_candidate, found))
            except MillraceError as error:
                problems.append(str(error))
            except tf.errors.OpError as error:  # a function of one's own may refuse what stands in a changed file
                problems.append(f"{file.path}: the transform refuses a row ({error.message.splitlines()[0]})")
    return problems


def _candidate(found: RowBatch, i: int, distance: float) -> Candidate:
    (raw,) = found.batch.slice(i, 1).to_pylist()
    offset = raw.pop(OFFSET)
    return Candidate(distance, Place(found.file.path, offset, int(found.numbers[i])), repr(raw))


def _named(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more:,} more" if more > 0 else "")
