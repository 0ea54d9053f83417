"""A schema knows whether its transform needs an analysis of the data; compared with what tf.Transform reads."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
import tensorflow_transform.beam as tft_beam
from apache_beam.pipeline import PipelineVisitor

from beam_jobs.rows.pipeline import adapter_config
from beam_jobs.transform.preprocessing import Preprocessing
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema

pytestmark = pytest.mark.slow

GIVEN_LABEL = "{name: y, kind: category, values: [a, b]}"


class Readers(PipelineVisitor):
    """Notes whether any transform reads what is in a PCollection."""

    def __init__(self, wanted: beam.PCollection) -> None:
        self.wanted, self.found = wanted, False

    def visit_transform(self, node: beam.pipeline.AppliedPTransform) -> None:
        counts_bytes = "InstrumentInputBytes" in node.full_label  # for Beam's own counters
        self.found |= self.wanted in node.inputs and not counts_bytes


@pytest.mark.parametrize(
    ("feature", "label", "measures"),
    [
        ("{name: x, kind: numeric}", GIVEN_LABEL, True),  # z_score
        ("{name: x, kind: numeric, transform: min_max}", GIVEN_LABEL, True),
        ("{name: x, kind: numeric, transform: log}", GIVEN_LABEL, False),
        ("{name: x, kind: numeric, transform: log, missing: mean}", GIVEN_LABEL, True),
        ("{name: x, kind: numeric, transform: none, missing: median}", GIVEN_LABEL, True),
        ("{name: x, kind: numeric, transform: none, missing: 0}", GIVEN_LABEL, False),
        ("{name: x, kind: numeric, transform: {scale: [0, 255]}}", GIVEN_LABEL, False),
        ("{name: x, kind: numeric, transform: {bucketize: [1, 2]}}", GIVEN_LABEL, False),
        ("{name: x, kind: numeric, transform: {bucketize: 3}}", GIVEN_LABEL, True),
        ("{name: x, kind: category}", GIVEN_LABEL, True),
        ("{name: x, kind: category, values: [a]}", GIVEN_LABEL, False),
        ("{name: x, kind: category, hash_buckets: 9}", GIVEN_LABEL, False),
        ("{name: x, kind: bool}", GIVEN_LABEL, False),
        ("{name: x, kind: text}", GIVEN_LABEL, True),
        ("{name: x, columns: [x0, x2], kind: one_hot}", GIVEN_LABEL, False),
        ("{name: x, kind: bool}", "{name: y, kind: category}", True),
        ("{name: x, kind: bool}", "{name: y, kind: numeric}", False),
    ],
)
def test_what_is_measured_is_read(tmp_path: Path, feature: str, label: str, measures: bool):
    (tmp_path / "s.yaml").write_text(
        f"name: t\nformat: csv\ncsv: {{header: present}}\nfeatures:\n  - {feature}\nlabel: {label}\nsplit: "
        "{by: row, train: 0.8, eval: 0.1, test: 0.1}\n"
    )
    schema = load_schema(str(tmp_path / "s.yaml"))
    assert isinstance(schema, Schema)
    pipeline = beam.Pipeline()
    with tft_beam.Context(temp_dir=str(tmp_path)):
        raw = pipeline | beam.Create([]).with_output_types(pa.RecordBatch)
        _ = (raw, adapter_config(schema, passthrough=False)) | tft_beam.AnalyzeDataset(Preprocessing(schema))
    readers = Readers(raw)
    pipeline.visit(readers)
    assert (Preprocessing(schema).measures, readers.found) == (measures, measures)
