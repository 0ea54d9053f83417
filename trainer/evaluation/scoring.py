"""Scores exports on the same raw rows or image files, batch by batch: of any transform and order of classes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas import interrupts, storage
from schemas.concurrency import prefetch
from schemas.dataset import Dataset
from schemas.dataset.manifest import Input, read_inputs
from schemas.dataset.provenance import located, open_rows, possible_paths
from schemas.errors import MillraceError, UsageError, counted
from schemas.exports.model import CLASS_ID, ERROR, OUTPUTS, PROBABILITIES, VALUE, ServedModel, inputs_of
from schemas.exports.rows import read_batches
from schemas.images.listing import Listing, list_csv, list_folders
from schemas.rows import dense
from schemas.spec import images as keys
from schemas.spec.images import SAMENESS, ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import raw_columns
from trainer.evaluation.predictions import Predictions, Target
from trainer.evaluation.slices import Slice, slices_of

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
        for part in read_batches([open_rows(dataset.schema, path)], dataset.schema, BATCH, split=split):
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


def inputs_with_rows(dataset: Dataset, split: str) -> Iterator[tuple[Input, int]]:
    """The inputs that gave a split rows, and how many each gave."""
    for part in read_inputs(dataset.path, dataset.manifest):
        rows: collections.Counter[str] = collections.Counter()
        for count in part.counts:
            if count.outcome == "written" and count.split == split:
                rows[count.input] += count.rows
        yield from ((file, rows[file.path]) for file in part.inputs if rows[file.path])


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
    for file, rows in inputs_with_rows(dataset, split):
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


IMAGE_BATCH = 64
MOST_IMAGES = MOST_ROWS // 64  # that are scored: of more, a random sample


def eval_images(dataset: Dataset, schema: ImageSchema, split: str, inputs: Sequence[str]) -> EvalRows:
    """Lists the files that the dataset was read from, or other ones.

    Args:
      dataset: whose inputs are read.
      schema: the dataset's.
      split: its name.
      inputs: where the files are now, as the `--input` of preprocessing.
    """
    (listed,) = [file.path for part in read_inputs(dataset.path, dataset.manifest) for file in part.inputs]
    root = schema.images.root
    listing: Listing
    if root is None:
        listing = list_folders(storage.expand(tuple(inputs) or tuple(_there(p, dataset) for p in listed.split(" "))))
    else:
        listing = list_csv(inputs[0] if inputs else _there(listed, dataset), root)
    paths = dict(zip(listing.names, listing.paths, strict=True))
    return EvalRows(dataset, split, dataset.rows(split), functools.partial(_image_batches, schema, paths))


def _there(path: str, dataset: Dataset) -> str:
    """Where a path or pattern that a dataset was read from has files now; if nowhere, as it is."""
    for place in possible_paths(path, dataset):
        with contextlib.suppress(UsageError):
            return place if storage.expand((place,)) else path
    return path


def _image_batches(schema: ImageSchema, paths: Mapping[str, str], rows: EvalRows) -> Iterator[RawBatch]:
    """Reads image files, or pairs of them; `paths` are by the names in the records."""
    examples = _examples(rows.dataset, schema, rows.split, paths)
    found = [(files, text) for files, text in examples if all(path and storage.exists(path) for path in files)]
    gone = len(examples) - len(found)
    if not found:
        raise MillraceError(
            f"{rows.dataset.path}: none of the files of the split {rows.split!r} is where it was read; restore "
            "them, or give --eval_input: where they are now, as the --input of preprocessing"
        )
    if gone:
        rows.notes.append(
            f"not scored, since files are gone: {counted(gone, schema.examples)} of the split {rows.split!r}"
        )
    if len(found) > MOST_IMAGES:
        rows.notes.append(f"{MOST_IMAGES:,} of {len(found):,} {schema.examples} were scored, a random sample")
        chosen = np.random.default_rng(0).choice(len(found), MOST_IMAGES, replace=False)
        found = [found[i] for i in sorted(chosen.tolist())]
    for start in range(0, len(found), IMAGE_BATCH):
        some = found[start : start + IMAGE_BATCH]
        columns = {
            image: np.array([*(storage.read_bytes(files[i]) for files, _ in some), None], object)[:-1]
            for i, image in enumerate(schema.image_names)
        }
        yield RawBatch(columns, np.array([*(text for _, text in some), None], object)[:-1])


def _examples(
    dataset: Dataset, schema: ImageSchema, split: str, paths: Mapping[str, str]
) -> list[tuple[list[str], bytes]]:
    """The files of each example of a split, '' where one is gone, and the name of its class."""
    import tensorflow as tf

    spec = dict.fromkeys((keys.FILENAME, keys.TEXT), tf.io.FixedLenFeature([], tf.string))
    records = tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression)
    files: list[str] = []
    texts: list[bytes] = []
    for record in records.batch(256).map(lambda some: tf.io.parse_example(some, spec)).as_numpy_iterator():
        names = (name.decode("utf-8", "surrogateescape") for name in record[keys.FILENAME].tolist())
        files += (paths.get(name, "") for name in names)
        texts += record[keys.TEXT].tolist()
    if not schema.pairs:
        return [([path], text) for path, text in zip(files, texts, strict=True)]
    from trainer.data.input_fn import evaluation_pairs

    drawn = zip(*(array.tolist() for array in evaluation_pairs(dataset, split)), strict=True)
    return [([files[i], files[j]], SAMENESS[same].encode()) for (i, j), same in drawn]


@dataclasses.dataclass(frozen=True)
class Export:
    """An export to be scored: its path, schema, class names by id, and the model."""

    path: str
    schema: AnySchema
    classes: tuple[str, ...]
    model: ServedModel


@dataclasses.dataclass(frozen=True)
class Scored:
    """What exports predict on the same rows.

    Attributes:
      predictions: of each export, of all rows.
      answered: of each export, bool `[rows]`: whether it gives the row a prediction.
      slices: the parts that the rows are divided into.
      classes: the names of all class ids; empty of numbers.
    """

    predictions: tuple[Predictions, ...]
    answered: tuple[np.ndarray, ...]
    slices: tuple[Slice, ...]
    classes: tuple[str, ...]


def check_inputs(export: Export, rows: AnySchema) -> None:
    """Raises UsageError where an export takes a column that these rows do not have, or of another form."""
    given = {column.name: column for column in inputs_of(rows)}
    for column in inputs_of(export.schema):
        found = given.get(column.name)
        if found is None or (found.dtype, found.width) != (column.dtype, column.width):
            what = "no such column" if found is None else f"{found.dtype} of width {found.width}"
            raise UsageError(
                f"{export.path}: takes {column.name!r} ({column.dtype}, width {column.width}), and the dataset has "
                f"{what}: the two exports cannot be scored on the same rows. Compare them by hand, and promote with "
                "--force"
            )


def score(exports: Sequence[Export], rows: EvalRows, slices: Sequence[str] = ()) -> Scored:
    """Runs all exports on all rows.

    Raises:
      UsageError: an export takes other columns than the rows have.
    """
    for export in exports:
        check_inputs(export, rows.dataset.declared)
    classes = tuple(dict.fromkeys(name for export in exports for name in export.classes))
    judges: list[_Judge] = [_Classes(export, classes) if classes else _values for export in exports]
    parts: list[list[tuple[Predictions, np.ndarray]]] = [[] for _ in exports]
    sliced: dict[str, list[np.ndarray]] = {name: [] for name in slices}
    for batch, outputs in prefetch(_predicted(exports, prefetch(rows.batches()))):
        interrupts.check()
        for place, answer in enumerate(outputs):
            errors = answer.get(ERROR)
            answered = np.ones(len(batch.labels), bool) if errors is None else errors == b""
            parts[place].append((judges[place](batch, answer), answered))
        for name, held in sliced.items():
            held.append(batch.columns[name])
    held_by = {name: np.concatenate(held) for name, held in sliced.items() if held}
    found = (part for name, values in held_by.items() for part in slices_of(rows.dataset.schema, name, values))
    return Scored(
        tuple(Predictions.joined(Target(classes), [predictions for predictions, _ in part]) for part in parts),
        tuple(np.concatenate([flags for _, flags in part]) if part else np.zeros(0, bool) for part in parts),
        tuple(found),
        classes,
    )


def _predicted(
    exports: Sequence[Export], batches: Iterator[RawBatch]
) -> Iterator[tuple[RawBatch, list[Mapping[str, Any]]]]:
    columns = [[column.name for column in inputs_of(export.schema)] for export in exports]
    for batch in batches:
        yield (
            batch,
            [
                export.model.predict({name: batch.columns[name] for name in names}, outputs=OUTPUTS)
                for export, names in zip(exports, columns, strict=True)
            ],
        )


_Judge = Callable[[RawBatch, Mapping[str, Any]], Predictions]


class _Classes:
    """Predictions of a model of classes, with ids among the classes of all exports: each numbers its own."""

    def __init__(self, export: Export, classes: Sequence[str]) -> None:
        self._target = Target(tuple(classes))
        self._names = {name.encode(): i for i, name in enumerate(classes)}
        self._own = np.array([classes.index(name) for name in export.classes])
        self._all = len(classes) + 1  # the last one: a label that none of them knows

    def __call__(self, batch: RawBatch, outputs: Mapping[str, Any]) -> Predictions:
        rows = len(batch.labels)
        label = np.fromiter((self._names.get(name, self._all - 1) for name in batch.labels), np.int64, rows)
        given = outputs[CLASS_ID].reshape(-1).astype(np.int64)
        predicted = np.where(given >= 0, self._own[given], self._all - 1)
        probabilities = np.zeros((rows, self._all), np.float64)
        probabilities[:, self._own] = np.nan_to_num(outputs[PROBABILITIES])
        every = Predictions.of_classes(self._target, label, probabilities, predicted, _weights(batch))
        return dataclasses.replace(every, probabilities=None)


def _values(batch: RawBatch, outputs: Mapping[str, Any]) -> Predictions:
    """Predictions of a model of numbers."""
    value = outputs[VALUE].reshape(-1).astype(np.float64)
    return Predictions.of_values(batch.labels.astype(np.float64), value, _weights(batch))


def _weights(batch: RawBatch) -> np.ndarray:
    return np.ones(len(batch.labels)) if batch.weights is None else batch.weights
