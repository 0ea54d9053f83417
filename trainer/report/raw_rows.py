"""Where stored records come from: the inputs of a dataset are read again, and their rows compared with the records.

A record does not hold its place. A row of an input whose values the dataset's own transform turns to those of the
record, in the same split, is one that it can come from; so no place is told that was not read and compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
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
from schemas.rows import RowFile
from schemas.spec.table import OFFSET, SPLIT, SPLITS, raw_columns
from trainer.export.warmup import graph_values, opened_graph, strict_spec
from trainer.report.row_match import Candidate, Nearest, Place, equal_pairs
from trainer.spec.transform_graph import transformed

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
