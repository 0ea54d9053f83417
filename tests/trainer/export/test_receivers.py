"""What clients send, and what the model sees of it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from schemas.exports.model import EXAMPLES, RAW, WITHOUT_KEY, ServedModel
from schemas.spec.table import serving_columns
from tests.support.csv_reading import csv_schema
from tests.support.written_records import example
from trainer.export.receivers import serving_input_receiver_fn
from trainer.export.row_errors import ROW_ERROR

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
NAN = float("nan")

REQUEST = {
    "id": "k1",
    "age": 40.0,
    "scores": [1.0, 2.0, 3.0],
    "hours": 38.0,
    "work": "Private",
    "city": "Oslo",
    "pet": [0.0, 1.0, 0.0],
    "member": "yes",
    "title": "The big cat",
    "words": "a b",
}


def columns(*rows: dict[str, Any]) -> dict[str, np.ndarray]:
    """Rows -> arrays with a leading batch dimension, as a client of a session sends them."""
    columns_ = {name: [row[name] for row in rows] for name in rows[0]}
    # NumPy's own type for bytes drops zeros at their end, and a serialized Example may end in some.
    return {n: np.array(v, object if isinstance(v[0], bytes) else None) for n, v in columns_.items()}


@pytest.fixture(scope="module")
def served(people_export):
    with ServedModel(people_export) as model:
        yield model


@pytest.fixture(scope="module")
def features(people):
    """Requests -> the features that the model is given."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        receiver = serving_input_receiver_fn(people)()
        session.run(tf.compat.v1.tables_initializer())
        yield lambda *rows: session.run(
            dict(receiver.features), {receiver.receiver_tensors[n]: v for n, v in columns(*rows).items()}
        )


@pytest.fixture(scope="module")
def works(people) -> list[bytes]:
    return tft.TFTransformOutput(people.run_dir).vocabulary_by_name("work")


class TestWhatTheModelSees:
    @pytest.mark.parametrize(
        ("sent", "value"),
        [
            ("Private", b"Private"),
            (" Private", b"Private"),
            ("?", b"<unknown>"),
            (" ? ", b"<unknown>"),
            ("", b"<unknown>"),
        ],
    )
    def test_strings_are_trimmed_and_tokens_for_missing_are_known(self, features, works, sent, value):
        assert features({**REQUEST, "work": sent})["work"] == works.index(value)

    @pytest.mark.parametrize(("sent", "id_"), [("Oslo", 0), ("Rome", 1), ("Atlantis", 2), ("oslo", 2), ("?", 2)])
    def test_a_value_never_seen_is_out_of_vocabulary(self, features, sent, id_):
        assert features({**REQUEST, "city": sent})["city"] == id_

    def test_nan_is_a_missing_number(self, features):
        seen = features({**REQUEST, "age": NAN, "scores": [NAN, 5.0, NAN]}, REQUEST)
        assert seen["age"][0] == 0.0  # the mean, after z_score
        assert seen["age_missing"].tolist() == [1.0, 0.0]
        np.testing.assert_allclose(seen["scores"], [[0.0, 0.5, 0.0], [0.1, 0.2, 0.3]], rtol=1e-6)

    def test_a_missing_number_that_the_schema_does_not_allow_is_an_error_beside_the_features(self, features):
        seen = features(REQUEST, {**REQUEST, "hours": NAN})
        assert seen[ROW_ERROR].tolist() == [b"", b"hours: missing_value"]
        assert seen["hours"][1] == 0.0  # what the model is given in its place

    @pytest.mark.parametrize("sent", [38, np.int64(38), np.float64(38.0)])
    def test_an_integer_is_a_number(self, features, sent):
        assert features({**REQUEST, "hours": sent})["hours"] == features(REQUEST)["hours"]

    @pytest.mark.parametrize(("sent", "value"), [("yes", 1.0), (" TRUE ", 1.0), ("no", 0.0), ("?", 0.0)])
    def test_booleans_are_words(self, features, sent, value):
        assert features({**REQUEST, "member": sent})["member"] == value

    def test_neither_label_nor_weight_is_asked_for(self, people):
        with tf.Graph().as_default():
            receiver = serving_input_receiver_fn(people)()
        assert set(receiver.receiver_tensors) == set(REQUEST)
        assert not {"income", "w"} & set(receiver.features)


class TestSignatures:
    def test_there_are_three(self, served):
        inputs = {name: set(entry.inputs) for name, entry in served.signatures.items() if not name.startswith("__")}
        assert inputs == {RAW: set(REQUEST), EXAMPLES: {"examples"}, WITHOUT_KEY: set(REQUEST) - {"id"}}

    def test_all_give_the_same_outputs(self, served):
        outputs = {name: set(served.signatures[name].outputs) for name in (RAW, EXAMPLES, WITHOUT_KEY)}
        assert set(map(frozenset, outputs.values())) == {
            frozenset({"key", "class", "class_id", "probabilities", "logits", "error"})
        }

    def test_examples_predict_what_raw_features_do(self, served):
        rows = [REQUEST, {**REQUEST, "id": "k2", "work": " Private", "age": NAN}]
        raw = served.predict(columns(*rows))
        parsed = served.predict({"examples": [example(row) for row in rows]}, signature=EXAMPLES)
        assert parsed["key"].tolist() == raw["key"].tolist() == [b"k1", b"k2"]
        np.testing.assert_array_equal(parsed["probabilities"], raw["probabilities"])

    def test_what_an_example_leaves_out_is_missing(self, served):
        short = {name: value for name, value in REQUEST.items() if name not in ("id", "age", "work", "scores")}
        full = {**REQUEST, "id": "", "age": NAN, "work": "", "scores": [NAN] * 3}
        found = served.predict({"examples": [example(short)]}, signature=EXAMPLES)
        expected = served.predict(columns(full))
        assert found["key"].tolist() == [b""]
        np.testing.assert_array_equal(found["probabilities"], expected["probabilities"])

    @pytest.mark.parametrize("label", ["<=50K", "never seen"])
    def test_a_label_in_an_example_is_not_looked_at(self, served, label):
        found = served.predict({"examples": [example({**REQUEST, "income": label})]}, signature=EXAMPLES)
        np.testing.assert_array_equal(found["probabilities"], served.predict(columns(REQUEST))["probabilities"])

    def test_the_key_can_be_left_out(self, served):
        request = {name: value for name, value in REQUEST.items() if name != "id"}
        found = served.predict(columns(request, request), signature=WITHOUT_KEY)
        assert found["key"].tolist() == [b"", b""]
        assert found["class"].shape == (2,)

    def test_any_other_input_cannot(self, served):
        request = {name: value for name, value in REQUEST.items() if name != "age"}
        with pytest.raises(tf.errors.InvalidArgumentError, match="a request needs every input: age, scores"):
            served.predict(columns(request))

    def test_as_many_keys_as_rows(self, served):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one key for each row"):
            served.predict({**columns(REQUEST, REQUEST), "id": np.array(["k1"])})


class TestDocumentedRequests:
    """The requests in docs/serving.md name every input of the schemas that ship, in its type and width."""

    TEXT = (ROOT / "docs" / "serving.md").read_text()

    @pytest.mark.parametrize(
        ("schema", "pattern", "read"),
        [
            ("covertype", r"-d '\{\"instances\": (\[.*?\])\}'", json.loads),
            ("census", r"\nrows = (\[.*?\n\])", ast.literal_eval),
        ],
    )
    def test_are_complete(self, schema, pattern, read):
        (rows,) = re.findall(pattern, self.TEXT, re.DOTALL)
        (row,) = read(rows)
        columns = serving_columns(csv_schema(schema))
        assert {name: np.shape(value) for name, value in row.items()} == {c.name: tuple(c.shape) for c in columns}
        assert {name for name, value in row.items() if isinstance(value, str)} == {
            c.name for c in columns if c.dtype == "string"
        }
