"""tf.Transform as its census example does it: text lines, a CSV TFXIO, AnalyzeAndTransformDataset, WriteToTFRecord.

https://github.com/tensorflow/transform/blob/master/examples/census_example_common.py, with the features of this
project's schema: vectors instead of one feature a column, vocabularies without one-hot encoding, and no splits. Beam's
in-process runner is named, which `beam.Pipeline()` meant until 2.68.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import apache_beam as beam
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tfx_bsl.public import tfxio

from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES, NumericVector, Table


def feature_spec(table: Table) -> dict[str, Any]:
    """The columns that are used, by name."""
    spec: dict[str, Any] = {}
    for vector in table.numeric.values():
        spec |= {table.columns[i]: tf.io.FixedLenFeature([1], tf.float32) for i in vector.columns}
    for first, last in table.one_hot.values():
        spec |= {table.columns[i]: tf.io.FixedLenFeature([1], tf.int64) for i in range(first, last + 1)}
    words = [*table.text, table.columns[table.label_column]]
    return spec | {name: tf.io.FixedLenFeature([1], tf.string) for name in words}


def preprocessing(table: Table) -> Any:
    """The table's preprocessing_fn."""

    def numeric(inputs: dict[str, Any], vector: NumericVector) -> Any:
        values = tf.concat([inputs[table.columns[i]] for i in vector.columns], axis=1)
        match vector.how:
            case "z_score":
                return tft.scale_to_z_score(values, elementwise=True)
            case "log":
                return tf.math.log1p(values)
            case "scale":
                return values / 255
            case bounds:
                return tft.apply_buckets(values, [list(bounds)])

    def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
        outputs = {name: numeric(inputs, vector) for name, vector in table.numeric.items()}
        for name, (first, last) in table.one_hot.items():
            hot = tf.concat([inputs[table.columns[i]] for i in range(first, last + 1)], axis=1)
            outputs[name] = tf.argmax(hot, axis=1)
        words = {name: tf.strings.strip(inputs[name]) for name in table.text}
        for name, values in words.items():
            outputs[name] = tft.compute_and_apply_vocabulary(values, num_oov_buckets=1, vocab_filename=name)
        texts = words | {n: tf.strings.as_string(outputs[n]) for n, v in table.numeric.items() if v.how not in _SCALES}
        for name, (of, buckets) in table.crosses.items():
            outputs[name] = tft.hash_strings(tf.strings.join([texts[n] for n in of], "_"), buckets)
        with tf.init_scope():
            initializer = tf.lookup.KeyValueTensorInitializer(
                tf.constant(table.labels), tf.range(len(table.labels), dtype=tf.int64)
            )
            classes = tf.lookup.StaticHashTable(initializer, default_value=-1)
        outputs[table.label] = classes.lookup(tf.strings.strip(inputs[table.columns[table.label_column]]))
        return outputs

    return preprocessing_fn


_SCALES = ("z_score", "log", "scale")


def write(task: BenchmarkTask) -> None:
    """Reads the CSV file and writes its rows as transformed records, and the transform next to them."""
    table = TABLES[task.table]
    schema = tft.DatasetMetadata.from_feature_spec(feature_spec(table)).schema
    with (
        tempfile.TemporaryDirectory() as temp_dir,
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
        tft_beam.Context(temp_dir=temp_dir),
    ):
        if table.spaced:
            csv_tfxio = tfxio.BeamRecordCsvTFXIO(
                physical_format="text", column_names=list(table.columns), schema=schema
            )
            raw = (
                pipeline
                | "ReadTrainData" >> beam.io.ReadFromText(task.source, coder=beam.coders.BytesCoder())
                | "FixCommasTrainData" >> beam.Map(lambda line: line.replace(b", ", b","))
                | "DecodeTrainData" >> csv_tfxio.BeamSource()
            )
        else:
            csv_tfxio = tfxio.CsvTFXIO(
                task.source, column_names=list(table.columns), schema=schema, skip_header_lines=int(table.header)
            )
            raw = pipeline | "ToRecordBatches" >> csv_tfxio.BeamSource()
        transformed, transform_fn = (
            raw,
            csv_tfxio.TensorAdapterConfig(),
        ) | tft_beam.AnalyzeAndTransformDataset(preprocessing(table), output_record_batches=True)
        _ = (
            transformed
            | "EncodeTrainData" >> tft_beam.EncodeTransformedDataset()
            | "WriteTrainData" >> beam.io.WriteToTFRecord(os.path.join(task.output, "train.tfrecord"))
        )
        _ = transform_fn | "WriteTransformFn" >> tft_beam.WriteTransformFn(task.output)
