"""Scores exports on the same raw rows or image files, batch by batch: of any transform and order of classes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas import interrupts, storage
from schemas.concurrency import prefetch
from schemas.dataset import OpenDataset
from schemas.dataset.manifest import Input, read_inputs
from schemas.dataset.provenance import located, open_rows, possible_paths
from schemas.errors import MillraceError, UsageError, counted, few
from schemas.exports.model import CLASS_ID, ERROR, OUTPUTS, PROBABILITIES, VALUE, ServedModel, inputs_of
from schemas.exports.predicting import read_batches
from schemas.images.listing import ImageListing, list_csv, list_folders
from schemas.rows import dense
from schemas.spec import images as keys
from schemas.spec.images import SAMENESS, ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import raw_columns
from trainer.evaluation.predictions import Predictions, PredictionTarget
from trainer.evaluation.slices import Slice, slices_of

BATCH = 4096
MOST_ROWS = 1 << 20  # that are scored: of more, a random sample


@dataclasses.dataclass(frozen=True)
class EvalBatch:
    """Raw rows of a split, or images.

    Attributes:
      columns: by feature or image, float32 or `bytes` objects, `[rows]` or `[rows, width]`, as a served model takes
        them.
      labels: `bytes` objects `[rows]`, or float32.
      weights: float64 `[rows]`.
    """

    columns: Mapping[str, np.ndarray]
    labels: np.ndarray
    weights: np.ndarray


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

    dataset: OpenDataset
    split: str
    expected: int | None
    source: Callable[[EvalRows], Iterator[EvalBatch]]
    read: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def batches(self) -> Iterator[EvalBatch]:
        """Reads all rows.

        Raises:
          MillraceError: a file cannot be read, or holds other rows than the job found there, or no image is there.
        """
        for batch in self.source(self):
            self.read += len(batch.labels)
            yield batch


def _row_batches(files: Sequence[tuple[str, int | None]], rows: EvalRows) -> Iterator[EvalBatch]:
    """Reads files of rows, each with how many of its records are in the split."""
    dataset, split, total = rows.dataset, rows.split, rows.expected or 0
    columns = raw_columns(dataset.schema)
    label, weight = dataset.schema.label.name, dataset.schema.weight
    keep = 1.0 if total <= MOST_ROWS else MOST_ROWS / total
    if keep < 1:
        rows.notes.append(f"{MOST_ROWS:,} of {total:,} rows were scored, a random sample")
    chosen = np.random.default_rng(0)
    for path, expected in files:
        count = 0
        for part in read_batches([open_rows(dataset.schema, path)], dataset.schema, BATCH, split=split):
            count += part.batch.num_rows
            batch = part.batch.filter(pa.array(chosen.random(part.batch.num_rows) < keep))
            if batch.num_rows:
                values = {c.name: dense(batch.column(c.name), c) for c in columns}
                labels = values.pop(label).reshape(-1)
                weights = values.pop(weight.name).astype(np.float64) if weight else np.ones(len(labels))
                yield EvalBatch(values, labels, weights)
        if expected is not None and count < expected:
            raise MillraceError(
                f"{path}: holds {count:,} rows of the split {split!r}, but {dataset.path} was written "
                f"with {expected:,}: the file has changed since. Restore it, append its rows, or give --eval_input."
            )


def _inputs_with_rows(dataset: OpenDataset, split: str) -> Iterator[tuple[Input, int]]:
    """The inputs that gave a split rows, and how many each gave."""
    for part in read_inputs(dataset.path, dataset.manifest):
        rows: collections.Counter[str] = collections.Counter()
        for count in part.counts:
            if count.outcome == "written" and count.split == split:
                rows[count.input] += count.rows
        yield from ((file, rows[file.path]) for file in part.inputs if rows[file.path])


def eval_rows(dataset: OpenDataset, split: str, inputs: Sequence[str]) -> EvalRows:
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
        elsewhere = [(path, None) for path in storage.expand(tuple(inputs))]
        return EvalRows(dataset, split, None, functools.partial(_row_batches, elsewhere))
    inputs_now = [(file.path, located(file, dataset), rows) for file, rows in _inputs_with_rows(dataset, split)]
    files = [(path, rows) for _, path, rows in inputs_now if path is not None]
    gone = [listed for listed, path, _ in inputs_now if path is None]
    too_few = "and the few records that a dataset keeps as they were read (parity/) are too few to compare models by"
    if not files:
        raise MillraceError(
            f"{dataset.path}: none of {counted(len(gone), 'inputs')} with rows of the split {split!r} is as it was "
            f"when it was read ({few(gone, 3)}), {too_few}. Restore the files, or give --eval_input FILE: files of raw "
            "rows, of which those are scored that the schema's split puts there"
        )
    expected = dataset.rows(split)
    split_rows = EvalRows(dataset, split, expected, functools.partial(_row_batches, files))
    if gone:
        lost = sum(rows for _, path, rows in inputs_now if path is None)
        split_rows.notes.append(
            f"{lost:,} of the {counted(expected, 'rows')} of the split {split!r} not scored, for lack of "
            f"{counted(len(gone), 'inputs')}, gone or changed since ({few(gone, 3)}), {too_few}"
        )
    return split_rows


IMAGE_BATCH = 64
MOST_IMAGES = MOST_ROWS // 64  # that are scored: of more, a random sample


def eval_images(dataset: OpenDataset, schema: ImageSchema, split: str, inputs: Sequence[str]) -> EvalRows:
    """Lists the files that the dataset was read from, or other ones.

    Args:
      dataset: whose inputs are read.
      schema: the dataset's.
      split: its name.
      inputs: where the files are now, as the `--input` of preprocessing.
    """
    (listed,) = [file.path for part in read_inputs(dataset.path, dataset.manifest) for file in part.inputs]
    root = schema.images.root
    listing: ImageListing
    if root is None:
        listing = list_folders(storage.expand(tuple(inputs) or tuple(_there(p, dataset) for p in listed.split(" "))))
    else:
        listing = list_csv(inputs[0] if inputs else _there(listed, dataset), root)
    paths = dict(zip(listing.names, listing.paths, strict=True))
    return EvalRows(dataset, split, dataset.rows(split), functools.partial(_image_batches, schema, paths))


def _there(path: str, dataset: OpenDataset) -> str:
    """Where a path or pattern that a dataset was read from has files now; if nowhere, as it is."""
    for place in possible_paths(path, dataset):
        with contextlib.suppress(UsageError):
            return place if storage.expand((place,)) else path
    return path


def _image_batches(schema: ImageSchema, paths: Mapping[str, str], rows: EvalRows) -> Iterator[EvalBatch]:
    """Reads image files, or pairs of them; `paths` are by the names in the records."""
    examples = _examples(rows.dataset, schema, rows.split, paths)
    present_examples = [
        (files, text) for files, text in examples if all(path and storage.exists(path) for path in files)
    ]
    gone = len(examples) - len(present_examples)
    if not present_examples:
        raise MillraceError(
            f"{rows.dataset.path}: none of the files of the split {rows.split!r} is where it was read; restore "
            "them, or give --eval_input: where they are now, as the --input of preprocessing"
        )
    if gone:
        rows.notes.append(
            f"not scored, since files are gone: {counted(gone, schema.examples)} of the split {rows.split!r}"
        )
    if len(present_examples) > MOST_IMAGES:
        rows.notes.append(
            f"{MOST_IMAGES:,} of {len(present_examples):,} {schema.examples} were scored, a random sample"
        )
        chosen = np.random.default_rng(0).choice(len(present_examples), MOST_IMAGES, replace=False)
        present_examples = [present_examples[i] for i in sorted(chosen.tolist())]
    for start in range(0, len(present_examples), IMAGE_BATCH):
        files, texts = zip(*present_examples[start : start + IMAGE_BATCH], strict=True)
        columns = {
            image: _objects([storage.read_bytes(paths[i]) for paths in files])
            for i, image in enumerate(schema.image_names)
        }
        yield EvalBatch(columns, _objects(texts), np.ones(len(texts)))


def _objects(values: Sequence[bytes]) -> np.ndarray:
    """An array of `bytes` objects, which may end in zeros."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _examples(
    dataset: OpenDataset, schema: ImageSchema, split: str, paths: Mapping[str, str]
) -> list[tuple[list[str], bytes]]:
    """The files of each example of a split, '' where one is gone, and the name of its class."""
    import tensorflow as tf

    spec = dict.fromkeys((keys.FILENAME, keys.TEXT), tf.io.FixedLenFeature([], tf.string))
    records = tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression)
    files: list[str] = []
    texts: list[bytes] = []
    for record in records.batch(256).map(lambda serialized: tf.io.parse_example(serialized, spec)).as_numpy_iterator():
        names = (name.decode("utf-8", "surrogateescape") for name in record[keys.FILENAME].tolist())
        files += (paths.get(name, "") for name in names)
        texts += record[keys.TEXT].tolist()
    if not schema.pairs:
        return [([path], text) for path, text in zip(files, texts, strict=True)]
    from trainer.data.input_fn import evaluation_pairs

    drawn = zip(*(array.tolist() for array in evaluation_pairs(dataset, split)), strict=True)
    return [([files[i], files[j]], SAMENESS[same].encode()) for (i, j), same in drawn]


@dataclasses.dataclass(frozen=True)
class ScoredExport:
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


def check_inputs(export: ScoredExport, rows: AnySchema) -> None:
    """Raises UsageError where an export takes a column that these rows do not have, or of another form."""
    row_columns = {column.name: column for column in inputs_of(rows)}
    for column in inputs_of(export.schema):
        row_column = row_columns.get(column.name)
        if row_column is None or (row_column.dtype, row_column.width) != (column.dtype, column.width):
            what = "no such column" if row_column is None else f"{row_column.dtype} of width {row_column.width}"
            raise UsageError(
                f"{export.path}: takes {column.name!r} ({column.dtype}, width {column.width}), and the dataset has "
                f"{what}: the two exports cannot be scored on the same rows. Compare them by hand, and promote with "
                "--force"
            )


def score(exports: Sequence[ScoredExport], rows: EvalRows, slices: Sequence[str] = ()) -> Scored:
    """Runs all exports on all rows.

    Raises:
      UsageError: an export takes other columns than the rows have.
    """
    for export in exports:
        check_inputs(export, rows.dataset.declared)
    classes = tuple(dict.fromkeys(name for export in exports for name in export.classes))
    parts: list[list[Predictions]] = [[] for _ in exports]
    answered: list[list[np.ndarray]] = [[] for _ in exports]
    values: dict[str, list[np.ndarray]] = {name: [] for name in slices}
    for batch in prefetch(rows.batches()):
        interrupts.check()
        for place, export in enumerate(exports):
            inputs = {column.name: batch.columns[column.name] for column in inputs_of(export.schema)}
            outputs = export.model.predict(inputs, outputs=OUTPUTS)
            answered[place].append(outputs[ERROR] == b"")
            parts[place].append(_of_classes(export, classes, batch, outputs) if classes else _of_values(batch, outputs))
        for name in slices:
            values[name].append(batch.columns[name])
    slicings = ((name, np.concatenate(batches)) for name, batches in values.items() if batches)
    return Scored(
        tuple(Predictions.joined(PredictionTarget(classes), part) for part in parts),
        tuple(np.concatenate(part) if part else np.zeros(0, bool) for part in answered),
        tuple(part for name, column in slicings for part in slices_of(rows.dataset.schema, name, column)),
        classes,
    )


def _of_classes(
    export: ScoredExport, classes: Sequence[str], batch: EvalBatch, outputs: Mapping[str, np.ndarray]
) -> Predictions:
    """Predictions with ids among the classes of all exports, since each export numbers its own."""
    rows, unknown = len(batch.labels), len(classes)  # the last id: of a label that no export knows
    ids = {name.encode(): i for i, name in enumerate(classes)}
    own = np.array([classes.index(name) for name in export.classes])
    label = np.fromiter((ids.get(name, unknown) for name in batch.labels), np.int64, rows)
    predicted = outputs[CLASS_ID].reshape(-1).astype(np.int64)
    predicted = np.where(predicted >= 0, own[predicted], unknown)
    probabilities = np.zeros((rows, unknown + 1), np.float64)
    probabilities[:, own] = np.nan_to_num(outputs[PROBABILITIES])
    table = Predictions.of_classes(PredictionTarget(tuple(classes)), label, probabilities, predicted, batch.weights)
    return dataclasses.replace(table, probabilities=None)


def _of_values(batch: EvalBatch, outputs: Mapping[str, np.ndarray]) -> Predictions:
    value = outputs[VALUE].reshape(-1).astype(np.float64)
    return Predictions.of_values(batch.labels.astype(np.float64), value, batch.weights)
