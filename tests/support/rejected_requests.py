"""Checks that an export gives no prediction for rows that the job rejects.

Takes a good row and makes bad rows of it, for each input and rule. Each is processed twice: by the job's reader and
transform as a record of a file, and by the exported model as a request. Verdicts and reasons must agree, a rejected row
must have no prediction, and the predictions of other rows must not change by a single bit. Images are checked in the
same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas.dataset import OpenDataset
from schemas.dataset.manifest import read_inputs
from schemas.errors import SkewError
from schemas.exports.model import ERROR, KEY, ServedModel, inputs_of, nothing
from schemas.formats import row_format
from schemas.images.header import BadImage, check_image
from schemas.spec.features import Feature, Numeric, OneHot, ReadAsNumbers, ReadAsStrings
from schemas.spec.table import NOT_FINITE, Schema, raw_columns
from trainer.export.receivers import record_columns
from trainer.export.skew_check import read_parity_records
from trainer.export.warmup import graph_values, opened_graph, raw_transform, strict_spec

Batch = Mapping[str, Any]  # by name, arrays [rows, ...]

# Numbers that a graph may take for others, as TensorFlow takes subnormal ones for zeros, by their bits: -0, the least
# and, below 0, the largest subnormal, the next one, the last below 1, and two at the ends of the range.
_BITS = (0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F7FFFFF, 0x7F7FFFFE, 0xFF7FFFFF)
ALIKE = 64  # inputs
EDGES = np.array(_BITS, np.uint32).view(np.float32)


@dataclasses.dataclass(frozen=True)
class Case:
    """A replacement for one input of a good row: its cells in a file, and its value in a request."""

    name: str
    cells: tuple[bytes, ...]
    value: Any


def row_cases(schema: Schema, good: Batch, edges: Sequence[float] | np.ndarray) -> Iterator[Case]:
    """Suspicious values for every input, whether or not the schema has a rule against them.

    Of inputs that are declared alike, for `ALIKE`, spread evenly: 9 cases of each of 1,000 inputs are 9,000,000 cells.

    Args:
      schema: the schema of the inputs.
      good: a good row, by input, each `[1]` or `[1, width]`.
      edges: numbers for every place of every numeric input.
    """
    alike: dict[tuple[str, int], list[str]] = {}
    for feature in schema.features:
        if feature.name in good:
            declared = repr(feature.model_dump(exclude={"name", "column", "columns"}))
            alike.setdefault((declared, np.size(good[feature.name])), []).append(feature.name)
    chosen = {name for names in alike.values() for name in names[:: -(-len(names) // ALIKE)]}
    for feature in schema.features:
        if feature.name in chosen:
            tokens = feature.tokens(schema.csv.missing)
            for cells, value in _bad_values(feature, np.asarray(good[feature.name][0]), tokens, edges):
                yield Case(feature.name, cells, value)


def _bad_values(
    feature: Feature, good: np.ndarray, missing: tuple[str, ...], edges: Sequence[float] | np.ndarray
) -> Iterator[tuple[tuple[bytes, ...], Any]]:
    absent = [token.encode() for token in missing[:1]]
    if isinstance(feature, ReadAsStrings):
        texts = [*dict.fromkeys((*absent, b"")), b"\xff", b"a\rb", b"Banana"]
        yield from (((text,), text) for text in texts)
    if isinstance(feature, ReadAsNumbers):
        numbers = np.atleast_1d(good).astype(np.float32)
        plain = [_cell(n, missing) for n in numbers]
        for place in {0, len(numbers) - 1}:
            for cell, value in [(cell, np.nan) for cell in absent] + [(b"1e400", np.inf)]:
                changed = numbers.copy()
                changed[place] = value
                yield (*plain[:place], cell, *plain[place + 1 :]), changed.reshape(good.shape)
        extreme = [[*numbers[:at], edge, *numbers[at + 1 :]] for at in {0, len(numbers) - 1} for edge in edges]
        for row in (*_doubtful_rows(feature, numbers.tolist()), *extreme):
            yield tuple(_cell(n, missing) for n in row), np.array(row, np.float32).reshape(good.shape)


def _doubtful_rows(feature: Feature, good: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Variants of a valid row that the kind's own rules may reject."""
    match feature:
        case Numeric(transform="log"):
            for place in {0, len(good) - 1}:
                yield from ((*good[:place], value, *good[place + 1 :]) for value in (-1.0, -5.0))
        case OneHot():
            yield from ((value,) * feature.width for value in (0.0, 1.0))


def _cell(value: Any, missing: tuple[str, ...]) -> bytes:
    """A value of a raw column as it is in an input file."""
    if isinstance(value, bytes):
        return value
    return missing[0].encode() if np.isnan(value) else repr(float(value)).encode()


def job_verdicts(dataset: OpenDataset, record: Batch, cases: list[Case]) -> list[str]:
    """The job's verdict on each case: `<input>: <reason>`, or '' if it accepts the row.

    Args:
      dataset: its reader is applied.
      record: a good record with its label, by raw column, each `[1]` or `[1, width]`.
      cases: each replaces one of the record's columns.
    """
    schema = dataset.schema
    part = next(part for part in read_inputs(dataset.path, dataset.manifest) if part.inputs)
    first = part.inputs[0]
    header = part.header_of(first)
    rows = row_format(schema)
    file = rows.file_from_manifest(first.path, schema, encoding="utf-8", header=header)
    tokens = schema.missing_tokens
    cells = {c.name: tuple(_cell(v, tokens[c.name]) for v in record[c.name].reshape(-1)) for c in raw_columns(schema)}
    raws = [rows.encode_record(file, schema, {**cells, case.name: case.cells}) for case in cases]
    decoded = rows.decode_records(file, schema, raws, range(len(raws)))
    names = {label: name for name, labels in file.labels for label in labels}
    verdicts = dict.fromkeys(range(len(cases)), "")
    verdicts |= {r.offset: f"{names.get(r.column or '', r.column)}: {r.reason}" for r in decoded.rejects}
    accepted = [i for i, verdict in verdicts.items() if not verdict]
    for i, name in zip(accepted, _not_finite(dataset, decoded.batch), strict=True):
        verdicts[i] = f"{name}: {NOT_FINITE}" if name else ""
    return [verdicts[i] for i in range(len(cases))]


def _not_finite(dataset: OpenDataset, batch: Any) -> list[str]:
    """For each raw row, the first feature that is not finite after the transform; '' if there is none."""
    from tfx_bsl.coders.example_coder import RecordBatchToExamples

    if not batch.num_rows:
        return []
    columns = [column.name for column in raw_columns(dataset.schema)]
    made = graph_values(raw_transform(dataset), RecordBatchToExamples(batch.select(columns)))
    features = [""] * batch.num_rows
    for name, values in reversed(made.items()):
        for row in _rows_not_finite(values):
            features[row] = name
    return features


def _rows_not_finite(values: Any) -> list[int]:
    """The rows with values that are not finite, in `[rows, ...]` or, for a sparse feature, one array per row."""
    if isinstance(values, list):
        return [row for row, value in enumerate(values) if value.dtype.kind == "f" and not np.isfinite(value).all()]
    if values.dtype.kind != "f":
        return []
    finite: np.ndarray = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    return np.flatnonzero(~finite).tolist()


def file_cases(good: Mapping[str, bytes]) -> list[Case]:
    """Files for every input of an image model: three bad ones, and the good one."""
    return [
        Case(name, (), data)
        for name, file in good.items()
        for data in (b"", b"this is no image", file[: len(file) // 2], file)
    ]


def file_verdicts(dataset: OpenDataset, cases: list[Case]) -> list[str]:
    """The job's verdict on each file: `<input>: <reason>`, or '' if it accepts the file."""
    import tensorflow as tf

    from trainer.export.image_receivers import load_ingest

    schema = dataset.image_schema
    assert schema is not None

    with opened_graph(lambda files: load_ingest(dataset).batch(files)) as ingested:

        def verdict(case: Case) -> str:
            try:
                check_image(case.value, schema.images)
                ingested([case.value])
            except BadImage as bad:
                return f"{case.name}: {bad.reason}"
            except tf.errors.OpError:
                return f"{case.name}: undecodable_image"
            return ""

        return [verdict(case) for case in cases]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A good row, replacements for its inputs, and the job's verdict on each; the same for all exports."""

    good: Batch  # the inputs of a request, each `[1]` or `[1, width]`
    cases: list[Case]
    verdicts: list[str]
    exact: bool  # whether the reasons must agree; for images, the job's reasons are more detailed than the graph's
    computed: bool  # whether the model computes rejected rows too, as zeros or empty files


def judge(dataset: OpenDataset, record: Batch, inputs: Iterable[str]) -> Judged:
    """Makes bad rows of a good one, and collects the job's verdicts on them.

    Args:
      dataset: the dataset that the models are trained on.
      record: a good raw record, by raw column (for images: bytes of files by input), each `[1]` or `[1, width]`.
      inputs: the inputs of a request.
    """
    good = {name: record[name] for name in inputs}
    if dataset.image_schema is not None:
        cases = file_cases({name: files[0] for name, files in good.items()})
        return Judged(good, cases, file_verdicts(dataset, cases), exact=False, computed=False)
    cases = list(row_cases(dataset.schema, good, EDGES))
    verdicts = job_verdicts(dataset, record, cases) if cases else []
    return Judged(good, cases, verdicts, exact=True, computed=True)


def check(judged: Judged, served: ServedModel) -> None:
    """Compares the job's verdicts with those of an export.

    Raises:
      SkewError: the verdicts on an input differ, a rejected row has a prediction, or a good row's prediction changes.
    """
    good, cases = judged.good, judged.cases
    if not cases:
        return
    rows = {name: np.concatenate([good[name]] * (len(cases) + 1)) for name in good}
    for i, case in enumerate(cases, start=1):
        rows[case.name][i] = case.value
    errors = [error.decode() for error in served.predict(rows, outputs=[ERROR])[ERROR][1:]]
    for case, verdict, error in zip(cases, judged.verdicts, errors, strict=True):
        if error != verdict if judged.exact else bool(error) != bool(verdict):
            raise SkewError(f"{_described(case, verdict)}, but {_outcome(error)} by the export.")
    # What the job accepts may still be more than the model of a user takes, so only rejected rows are predicted.
    rejected = [i for i, error in enumerate(errors) if error]
    predictions = served.predict({name: values[[0, *(i + 1 for i in rejected)]] for name, values in rows.items()})
    for place, i in enumerate(rejected, start=1):
        answered = [name for name, x in predictions.items() if name not in (ERROR, KEY) and not _withheld(x[place])]
        if answered:
            outcome = f"{_outcome(errors[i])} by the export, which still gives {answered[0]!r}."
            raise SkewError(f"{_described(cases[i], judged.verdicts[i])}, but {outcome}")
    # A sum of floats depends on the number of rows beside it.
    beside = len(rejected) if judged.computed else 0
    alone = served.predict({name: np.concatenate([good[name]] * (beside + 1)) for name in good})
    for name, values in predictions.items():
        if not np.array_equal(values[0], alone[name][0], equal_nan=values.dtype.kind == "f"):
            raise SkewError(f"{name!r} of a valid row changes next to invalid rows: {values[0]}, not {alone[name][0]}")


def _described(case: Case, verdict: str) -> str:
    return f"a row whose {case.name!r} is {str(case.value)[:60]} is {_outcome(verdict)} by the job"


def _outcome(verdict: str) -> str:
    return f"rejected ({verdict})" if verdict else "accepted"


def _withheld(value: Any) -> bool:
    array = np.asarray(value)
    return np.array_equal(array, np.full_like(array, nothing(array.dtype)), equal_nan=array.dtype.kind in "fc")


def check_rejections(dataset: OpenDataset, export_dir: str) -> None:
    """Checks that an export of a dataset's model rejects what the job rejects, of bad rows made of a parity record.

    Raises:
      SkewError: see `check`.
    """
    import tensorflow as tf

    raw = read_parity_records(dataset).raw[:1]
    spec = strict_spec(record_columns(dataset))
    record = graph_values(lambda serialized: tf.io.parse_example(serialized, spec), raw)
    inputs = [column.name for column in inputs_of(dataset.declared)]
    with ServedModel(export_dir) as served:
        check(judge(dataset, record, inputs), served)
