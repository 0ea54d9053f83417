"""Vocabularies: which words, in which order, and what each costs however few rows there are."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor

from beam_jobs.csv_pipeline import adapter_config
from beam_jobs.job import run_job
from beam_jobs.options import JobOptions
from beam_jobs.preprocessing import Preprocessing
from beam_jobs.vocabularies import EMPTY, Vocabulary, words_of
from schemas.dataset import open_dataset
from schemas.load import load_schema
from schemas.schema import Schema


@pytest.mark.parametrize(
    ("vocabulary", "counts", "words"),
    [
        (Vocabulary("v"), [(1, b"c"), (3, b"a"), (2, b"b")], [b"a", b"b", b"c"]),
        (Vocabulary("v"), [(2, b"a"), (2, b"\xff"), (2, b"b")], [b"\xff", b"b", b"a"]),  # equals: by falling bytes
        (Vocabulary("v", top_k=2), [(1, b"c"), (3, b"a"), (2, b"b")], [b"a", b"b"]),
        (Vocabulary("v", frequency_threshold=2), [(1, b"c"), (3, b"a"), (2, b"b")], [b"a", b"b"]),
        (Vocabulary("v", top_k=1, frequency_threshold=4), [(3, b"a")], [EMPTY]),  # a table needs a word
    ],
)
def test_the_most_frequent_words_come_first(vocabulary, counts, words):
    assert vocabulary.choose(counts) == words


def test_what_is_missing_or_holds_a_line_end_is_no_word():
    words = np.array([b"a", b"", b"b", b"two\nlines", b"a", b"cr\r"], object)
    batch = (np.array([3, 0, 3]), words, np.arange(1, 7))
    assert list(words_of(batch)) == [((0, b"a"), 1), ((0, b"b"), 3), ((2, b"a"), 5)]


SCHEMA = """\
name: words
format: csv
csv: {header: present, quoted_newlines: true}
features:
  - {name: a.b, kind: category, missing: gone}
  - {name: a_b, kind: category, top_k: 1}
  - {name: empty, kind: text}
label: {name: y, kind: category}
split: {by: file, train: train.csv, eval: eval.csv}
"""
HEADER = "a.b,a_b,empty,y\n"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tft.TFTransformOutput:
    folder = tmp_path_factory.mktemp("vocabularies")
    (folder / "words.yaml").write_text(SCHEMA)
    (folder / "train.csv").write_text(HEADER + "x,x,,no\n,x,,yes\n z ,x,,yes\n,z,,no\n" + '"a\nb",z,,no\n')
    (folder / "eval.csv").write_text(HEADER + "unseen,unseen,unseen,no\n")
    inputs = (str(folder / "train.csv"), str(folder / "eval.csv"))
    run_job(JobOptions(schema=str(folder / "words.yaml"), input=inputs, output=str(folder / "out"), quiet=True))
    return tft.TFTransformOutput(open_dataset(str(folder / "out")).run_dir)


def test_each_feature_has_the_words_of_its_train_rows_under_its_own_name(output):
    assert output.vocabulary_by_name("a.b") == [b"gone", b"z", b"x"]
    assert output.vocabulary_by_name("a_b") == [b"x"]
    assert output.vocabulary_by_name("empty") == [EMPTY]
    assert output.vocabulary_by_name("y") == [b"no", b"yes"]


def test_the_range_of_ids_is_declared(output):
    domains = {f.name: (f.int_domain.min, f.int_domain.max) for f in output.transformed_metadata.schema.feature}
    assert domains["a.b"] == (0, 3)  # three words and a bucket for the others
    assert domains["y"] == (-1, 1)


class Leaves(PipelineVisitor):
    """Counts the transforms that a runner is given."""

    count = 0

    def visit_transform(self, node: AppliedPTransform) -> None:
        self.count += 1


def leaves(folder: Path, vocabularies: int) -> int:
    """How many transforms the analysis of so many vocabularies is."""
    features = "".join(f"  - {{name: v{i}, kind: category}}\n" for i in range(vocabularies))
    path = folder / f"{vocabularies}.yaml"
    path.write_text(f"name: v\nformat: csv\nfeatures:\n{features}label: {{name: y, kind: numeric}}\n")
    schema = load_schema(str(path))
    assert isinstance(schema, Schema)
    pipeline = beam.Pipeline()
    rows = pipeline | beam.Create([], reshuffle=False).with_output_types(pa.RecordBatch)
    with tft_beam.Context(temp_dir=str(folder)):
        _ = (rows, adapter_config(schema, passthrough=False)) | tft_beam.AnalyzeDataset(Preprocessing(schema))
    visitor = Leaves()
    pipeline.visit(visitor)
    return visitor.count


def test_a_vocabulary_more_is_one_transform_more(tmp_path):
    assert leaves(tmp_path, 9) - leaves(tmp_path, 2) == 7  # tft.vocabulary would make it 50 each
