"""Scores exports on the same raw rows or image files, batch by batch: of any transform and order of classes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf

from schemas import interrupts, storage
from schemas.concurrency import prefetch
from schemas.dataset import OpenDataset
from schemas.dataset.manifest import Input, read_inputs
from schemas.dataset.provenance import located, open_rows, possible_paths
from schemas.errors import MillraceError, UsageError, counted, few
from schemas.exports.model import CLASS_ID, ERROR, OUTPUTS, PROBABILITIES, VALUE, ServedModel, inputs_of
from schemas.exports.predicting import read_batches
from schemas.images.listing import list_csv, list_folders
from schemas.rows import dense
from schemas.spec import images as keys
from schemas.spec.images import SAMENESS, ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import raw_columns
from trainer.data.input_fn import evaluation_pairs
from trainer.evaluation.predictions import Predictions, PredictionTarget
from trainer.evaluation.records import stored_batches
from trainer.evaluation.slices import Slice, raw_slices

BATCH, IMAGE_BATCH = 4096, 64
MOST_ROWS = 1 << 20  # that are scored: of more, a random sample
MOST_IMAGES = MOST_ROWS // 64
_TOO_FEW = "and the few records that a dataset keeps as they were read (parity/) are too few to compare models by"


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


@dataclasses.dataclass(frozen=True)
class EvalRows:
    """The raw rows of one split, or its images or pairs of images.

    Attributes:
      dataset: that has the split.
      expected: how many rows it has; None where other files were given.
      batches: reads them all, once.
      notes: what is left out and why, for people.
    """

    dataset: OpenDataset
    expected: int | None
    batches: Iterator[EvalBatch]
    notes: tuple[str, ...] = ()


def eval_rows(dataset: OpenDataset, split: str, inputs: Sequence[str]) -> EvalRows:
    """Opens the files that hold the raw rows of a split.

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
        return EvalRows(dataset, None, _row_batches(dataset, split, elsewhere, share=1.0))
    expected = dataset.rows(split)
    inputs_now = [(file.path, located(file, dataset), rows) for file, rows in _inputs_with_rows(dataset, split)]
    files = [(path, rows) for _, path, rows in inputs_now if path is not None]
    gone = {listed: rows for listed, path, rows in inputs_now if path is None}
    if not files:
        raise MillraceError(
            f"{dataset.path}: none of {counted(len(gone), 'inputs')} with rows of the split {split!r} is as it was "
            f"when it was read ({few([*gone], 3)}), {_TOO_FEW}. Restore the files, or give --eval_input FILE: files of "
            "raw rows, of which those are scored that the schema's split puts there"
        )
    notes = []
    if gone:
        notes.append(
            f"{sum(gone.values()):,} of the {counted(expected, 'rows')} of the split {split!r} not scored, for lack of "
            f"{counted(len(gone), 'inputs')}, gone or changed since ({few([*gone], 3)}), {_TOO_FEW}"
        )
    if expected > MOST_ROWS:
        notes.append(f"{MOST_ROWS:,} of {expected:,} rows were scored, a random sample")
    share = min(1.0, MOST_ROWS / max(1, expected))
    return EvalRows(dataset, expected, _row_batches(dataset, split, files, share=share), tuple(notes))


def _inputs_with_rows(dataset: OpenDataset, split: str) -> Iterator[tuple[Input, int]]:
    """The inputs that gave a split rows, and how many each gave."""
    for part in read_inputs(dataset.path, dataset.manifest):
        rows: collections.Counter[str] = collections.Counter()
        for count in part.counts:
            if count.outcome == "written" and count.split == split:
                rows[count.input] += count.rows
        yield from ((file, rows[file.path]) for file in part.inputs if rows[file.path])


def _row_batches(
    dataset: OpenDataset, split: str, files: Sequence[tuple[str, int | None]], *, share: float
) -> Iterator[EvalBatch]:
    """Reads a random share of the rows of a split from files, each with how many of its records are in the split."""
    columns = raw_columns(dataset.schema)
    label, weight = dataset.schema.label.name, dataset.schema.weight
    rng = np.random.default_rng(0)
    for path, expected in files:
        count = 0
        for part in read_batches([open_rows(dataset.schema, path)], dataset.schema, BATCH, split=split):
            count += part.batch.num_rows
            batch = part.batch.filter(pa.array(rng.random(part.batch.num_rows) < share))
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


def eval_images(dataset: OpenDataset, schema: ImageSchema, split: str, inputs: Sequence[str]) -> EvalRows:
    """Lists the image files that a split was read from, or other ones.

    Args:
      dataset: whose inputs are read.
      schema: the dataset's.
      split: its name.
      inputs: where the files are now, as the `--input` of preprocessing.

    Raises:
      MillraceError: none of the files is there.
    """
    (listed,) = [file.path for part in read_inputs(dataset.path, dataset.manifest) for file in part.inputs]
    root = schema.images.root
    if root is None:
        patterns = tuple(inputs) or tuple(_present_path(pattern, dataset) for pattern in listed.split(" "))
        listing = list_folders(storage.expand(patterns))
    else:
        listing = list_csv(inputs[0] if inputs else _present_path(listed, dataset), root)
    examples = _image_examples(dataset, schema, split, dict(zip(listing.names, listing.paths, strict=True)))
    present = [(files, text) for files, text in examples if all(path and storage.exists(path) for path in files)]
    if not present:
        raise MillraceError(
            f"{dataset.path}: none of the files of the split {split!r} is where it was read; restore "
            "them, or give --eval_input: where they are now, as the --input of preprocessing"
        )
    notes = []
    if gone := len(examples) - len(present):
        notes.append(f"not scored, since files are gone: {counted(gone, schema.examples)} of the split {split!r}")
    if len(present) > MOST_IMAGES:
        notes.append(f"{MOST_IMAGES:,} of {len(present):,} {schema.examples} were scored, a random sample")
        sample = np.random.default_rng(0).choice(len(present), MOST_IMAGES, replace=False)
        present = [present[i] for i in sorted(sample.tolist())]
    return EvalRows(dataset, dataset.rows(split), _image_batches(schema, present), tuple(notes))


def _present_path(path: str, dataset: OpenDataset) -> str:
    """Where a path or pattern that a dataset was read from has files now; if nowhere, as it is."""
    for place in possible_paths(path, dataset):
        with contextlib.suppress(UsageError):
            return place if storage.expand((place,)) else path
    return path


def _image_examples(
    dataset: OpenDataset, schema: ImageSchema, split: str, paths: Mapping[str, str]
) -> list[tuple[list[str], bytes]]:
    """The files of each example of a split, '' where one is gone, and the name of its class.

    `paths` are by the names in the records.
    """
    spec = dict.fromkeys((keys.FILENAME, keys.TEXT), tf.io.FixedLenFeature([], tf.string))
    files: list[str] = []
    texts: list[bytes] = []
    for batch in stored_batches(dataset, split, spec):
        files += (paths.get(name.decode("utf-8", "surrogateescape"), "") for name in batch[keys.FILENAME].tolist())
        texts += batch[keys.TEXT].tolist()
    if not schema.pairs:
        return [([path], text) for path, text in zip(files, texts, strict=True)]
    drawn = zip(*(array.tolist() for array in evaluation_pairs(dataset, split)), strict=True)
    return [([files[i], files[j]], SAMENESS[same].encode()) for (i, j), same in drawn]


def _image_batches(schema: ImageSchema, examples: Sequence[tuple[list[str], bytes]]) -> Iterator[EvalBatch]:
    for start in range(0, len(examples), IMAGE_BATCH):
        files, texts = zip(*examples[start : start + IMAGE_BATCH], strict=True)
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


def score(exports: Sequence[ScoredExport], rows: EvalRows, slices: Sequence[str] = ()) -> Scored:
    """Runs all exports on all rows.

    Args:
      exports: the exports.
      rows: the rows.
      slices: features by whose values the rows are divided.

    Raises:
      UsageError: an export takes other columns than the rows have.
      MillraceError: a file cannot be read, or holds other rows than the job read there.
    """
    for export in exports:
        _check_inputs(export, rows.dataset.declared)
    target = PredictionTarget(tuple(dict.fromkeys(name for export in exports for name in export.classes)))
    tables: list[list[Predictions]] = [[] for _ in exports]
    answered: list[list[np.ndarray]] = [[np.zeros(0, bool)] for _ in exports]
    values: dict[str, list[np.ndarray]] = {name: [] for name in slices}
    for batch in prefetch(rows.batches):
        interrupts.check()
        for i, export in enumerate(exports):
            inputs = {column.name: batch.columns[column.name] for column in inputs_of(export.schema)}
            outputs = export.model.predict(inputs, outputs=OUTPUTS)
            answered[i].append(outputs[ERROR] == b"")
            tables[i].append(_predictions(export, target, batch, outputs))
        for name in slices:
            values[name].append(batch.columns[name])
    columns = ((name, np.concatenate(batches)) for name, batches in values.items() if batches)
    return Scored(
        tuple(Predictions.joined(target, parts) for parts in tables),
        tuple(map(np.concatenate, answered)),
        tuple(part for name, column in columns for part in raw_slices(rows.dataset.schema, name, column)),
        target.names,
    )


def _check_inputs(export: ScoredExport, rows: AnySchema) -> None:
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


def _predictions(
    export: ScoredExport, target: PredictionTarget, batch: EvalBatch, outputs: Mapping[str, np.ndarray]
) -> Predictions:
    """A batch's predictions, with ids among the classes of all exports, since each export numbers its own."""
    if not target.names:
        values = outputs[VALUE].reshape(-1).astype(np.float64)
        return Predictions.of_values(batch.labels.astype(np.float64), values, batch.weights)
    rows, unknown = len(batch.labels), len(target.names)  # the last id: of a label that no export knows
    ids = {name.encode(): i for i, name in enumerate(target.names)}
    own = np.array([target.names.index(name) for name in export.classes])
    label = np.fromiter((ids.get(name, unknown) for name in batch.labels), np.int64, rows)
    predicted = outputs[CLASS_ID].reshape(-1).astype(np.int64)
    predicted = np.where(predicted >= 0, own[predicted], unknown)
    probabilities = np.zeros((rows, unknown + 1), np.float64)
    probabilities[:, own] = np.nan_to_num(outputs[PROBABILITIES])
    table = Predictions.of_classes(target, label, probabilities, predicted, batch.weights)
    return dataclasses.replace(table, probabilities=None)
