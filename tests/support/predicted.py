"""Folders of predictions: run the job, read its shards back by other libraries, check its accounts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pandas as pd
import pyarrow.parquet as pq
import tensorflow as tf

from beam_jobs import predict as bulk
from schemas.dataset import layout
from schemas.predictions.manifest import PredictionsManifest, read_predictions
from schemas.rejects import Reject
from trainer import predict

Row = dict[str, Any]


def by_the_job(export: object, output: Path, *inputs: object, more: tuple[str, ...] = ()) -> PredictionsManifest:
    """Predicts in bulk, and checks what the manifest says of files and counts."""
    argv = ["--saved_model", str(export), "--output", str(output), "--quiet", *more, "--input", *map(str, inputs)]
    assert bulk.main(argv) == 0
    manifest = read_predictions(str(output))
    assert_whole(output, manifest)
    return manifest


def by_the_trainer(export: object, folder: Path, *inputs: object, more: tuple[str, ...] = ()) -> tuple[list[Row], list]:
    """What trainer.predict says of the same input: its lines, and its rejects."""
    output = folder / "oracle.jsonl"
    argv = ["--saved_model", str(export), "--output", str(output), "--overwrite", "--quiet", *more]
    assert predict.main([*argv, "--max_rejects", "1000", "--input", *map(str, inputs)]) == 0
    return read_lines(output), read_rejects(folder / "oracle.rejects.jsonl")


def predicting(export: object, folder: Path) -> Callable[..., int]:
    """Runs the command on inputs, with its output in a folder; returns its exit code."""

    def run(*inputs: object, output: str = "p.jsonl", more: tuple[str, ...] = ()) -> int:
        argv = ["--saved_model", str(export), "--output", str(folder / output), *more]
        return predict.main([*argv, "--input", *map(str, inputs)])

    return run


def read_lines(path: Path) -> list[Row]:
    """The objects of a file of JSON lines, such as predictions."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_rejects(path: Path) -> list[Reject]:
    """The rejects of a file of them."""
    return [Reject.from_json(line) for line in path.read_text().splitlines()]


def assert_whole(output: Path, manifest: PredictionsManifest) -> None:
    """Every file is there, byte for byte, and nothing else; and every record is accounted for."""
    for shard in manifest.shards:
        data = (output / shard.path).read_bytes()
        assert (len(data), google_crc32c.Checksum(data).hexdigest().decode()) == (shard.bytes, shard.crc32c)
    for file in manifest.files:
        assert hashlib.sha256((output / file.path).read_bytes()).hexdigest() == file.sha256
    named = {shard.path for shard in manifest.shards} | {file.path for file in manifest.files}
    files = [path.relative_to(output) for path in (output / manifest.run).rglob("*") if path.is_file()]
    assert {str(path) for path in files if layout.STAGING not in path.parts} == named  # which a killed job may leave
    assert manifest.read == manifest.predicted + manifest.rejected
    assert manifest.predicted == sum(shard.rows for shard in manifest.shards)
    assert manifest.rejected == len(rejects_of(output, manifest))
    if not manifest.input_files:
        assert [(i.read, i.written + i.rejected) for i in manifest.inputs] == [
            (i.read, i.read) for i in manifest.inputs
        ]
        assert sum(i.read for i in manifest.inputs) == manifest.read


def rejects_of(output: Path, manifest: PredictionsManifest) -> list[Reject]:
    """The rejects, by place."""
    paths = (output / manifest.run).glob("rejects-*.jsonl")
    rejects = [Reject.from_json(line) for path in paths for line in path.read_text().split("\n")[:-1]]
    return sorted(rejects, key=lambda reject: (reject.source, reject.offset))


def rows_of(output: Path, manifest: PredictionsManifest) -> list[Row]:
    """The predictions in the form of JSON lines, read by pandas, pyarrow and TensorFlow; by place."""
    rows: list[Row] = []
    for shard in manifest.shards:
        rows += _READERS[manifest.format](output / shard.path, manifest)
    return sorted(rows, key=lambda row: (row["source"], row["offset"]))


def _jsonl(path: Path, manifest: PredictionsManifest) -> Iterator[Row]:
    yield from map(json.loads, path.read_text().split("\n")[:-1])


def _csv(path: Path, manifest: PredictionsManifest) -> Iterator[Row]:
    texts = ("source", "key", "class", *(f"input.{name}" for name in manifest.pass_through))
    frame = pd.read_csv(path, dtype=dict.fromkeys(texts, "str"), keep_default_na=False)
    for row in frame.to_dict("records"):
        yield _nested(row, {name: row.pop(f"probability_{name}") for name in manifest.classes})


def _parquet(path: Path, manifest: PredictionsManifest) -> Iterator[Row]:
    for row in pq.read_table(path).to_pylist():
        yield _nested(row, dict(zip(manifest.classes, row.pop("probabilities", ()), strict=True)))


def _tfrecord(path: Path, manifest: PredictionsManifest) -> Iterator[Row]:
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        example = tf.train.Example.FromString(record)
        row: Row = {}
        for name, feature in example.features.feature.items():
            values = list(getattr(feature, feature.WhichOneof("kind")).value)
            row[name] = [v.decode() if isinstance(v, bytes) else v for v in values]
        probabilities = dict(zip(manifest.classes, row.pop("probabilities", ()), strict=True))
        yield _nested({name: values[0] for name, values in row.items()}, probabilities)


_READERS = {"jsonl": _jsonl, "csv": _csv, "parquet": _parquet, "tfrecord": _tfrecord}


def _nested(row: Row, probabilities: Row) -> Row:
    passed = {name: row.pop(name) for name in list(row) if name.startswith("input.")}
    row |= {"input": {name.removeprefix("input."): value for name, value in passed.items()}} if passed else {}
    return row | ({"probabilities": probabilities} if probabilities else {})
