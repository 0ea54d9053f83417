"""What clients send, what the model sees of it, and what it predicts, under its own names."""

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
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.export.outputs import named_predictions, withheld
from trainer.export.receivers import serving_input_receiver_fn

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
    with tf.Graph().as_default():
        receiver = serving_input_receiver_fn(people)()
        session = tf.compat.v1.Session()
        session.run(tf.compat.v1.tables_initializer())
    yield lambda *rows: session.run(
        dict(receiver.features), {receiver.receiver_tensors[n]: v for n, v in columns(*rows).items()}
    )
    session.close()


@pytest.fixture(scope="module")
def works(people) -> list[bytes]:
    return tft.TFTransformOutput(people.run_dir).vocabulary_by_name("work")


class TestWhatTheModelSees:
    @pytest.mark.parametrize(
        ("sent", "value"),
        [(" Private", b"Private"), (" ? ", b"<unknown>"), ("", b"<unknown>")],
    )
    def test_strings_are_trimmed_and_tokens_for_missing_are_known(self, features, works, sent, value):
        assert features({**REQUEST, "work": sent})["work"] == works.index(value)

    @pytest.mark.parametrize(("sent", "id_"), [("Oslo", 0), ("Rome", 1), ("Atlantis", 2), ("oslo", 2), ("?", 2)])
    def test_a_value_never_seen_is_out_of_vocabulary(self, features, sent, id_):
        assert features({**REQUEST, "city": sent})["city"] == id_

    def test_nan_is_a_missing_number(self, features):
        transformed = features({**REQUEST, "age": NAN, "scores": [NAN, 5.0, NAN]}, REQUEST)
        assert transformed["age"][0] == 0.0  # the mean, after z_score
        assert transformed["age_missing"].tolist() == [1.0, 0.0]
        np.testing.assert_allclose(transformed["scores"], [[0.0, 0.5, 0.0], [0.1, 0.2, 0.3]], rtol=1e-6)


class TestSignatures:
    def test_there_are_three_with_the_same_outputs(self, served):
        inputs = {name: set(entry.inputs) for name, entry in served.signatures.items() if not name.startswith("__")}
        assert inputs == {RAW: set(REQUEST), EXAMPLES: {"examples"}, WITHOUT_KEY: set(REQUEST) - {"id"}}
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
        answer = served.predict({"examples": [example(short)]}, signature=EXAMPLES)
        expected = served.predict(columns(full))
        assert answer["key"].tolist() == [b""]
        np.testing.assert_array_equal(answer["probabilities"], expected["probabilities"])

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


TWO, THREE = ("no", "yes"), ("a", "b", "c")
LOG3 = float(np.log(3))


def tensor(*values):
    return tf.constant(values, tf.float32)


class TestClassification:
    @pytest.mark.parametrize(
        ("predictions", "names", "probabilities"),
        [
            ({"probabilities": tensor([0.2, 0.3, 0.5])}, THREE, [0.2, 0.3, 0.5]),
            ({"logits": tensor([0.0, 0.0, LOG3])}, THREE, [0.2, 0.2, 0.6]),
            ({"logits": tensor(LOG3)}, TWO, [0.25, 0.75]),
            ({"probabilities": tensor([0.75])}, TWO, [0.25, 0.75]),
            ({"dense_7": tensor([0.2, 0.3, 0.5])}, THREE, [0.2, 0.3, 0.5]),  # a Keras model's one output
            (tensor([0.25, 0.75]), TWO, [0.25, 0.75]),
        ],
    )
    def test_probabilities_of_every_class_from_probabilities_or_logits(self, predictions, names, probabilities):
        named = named_predictions(predictions, names)
        np.testing.assert_allclose(named["probabilities"], [probabilities], rtol=1e-6)
        assert named["class_id"].numpy().tolist() == [len(names) - 1]
        assert named["class"].numpy().tolist() == [names[-1].encode()]

    def test_the_class_is_the_models(self):
        outputs = {"probabilities": tensor([0.4, 0.6], [0.4, 0.6]), "class_ids": tf.constant([[0], [1]])}
        assert named_predictions(outputs, TWO)["class"].numpy().tolist() == [b"no", b"yes"]

    def test_what_canned_heads_add_is_left_out_and_what_is_ones_own_stays(self):
        outputs = dict.fromkeys(("classes", "all_classes", "all_class_ids", "logistic"), tensor([1]))
        own = {"logits": tensor([0.0, 1.0]), "embedding": tensor([1.0, 2.0, 3.0])}
        named = named_predictions({**outputs, **own}, TWO)
        assert set(named) == {"class", "class_id", "probabilities", "logits", "embedding"}

    @pytest.mark.parametrize(
        ("predictions", "message"),
        [
            ({"a": tensor([1]), "b": tensor([2])}, r"predicts \['a', 'b'\]; it must predict probabilities or logits"),
            ({"logits": tensor([1.0, 2.0])}, "predicts 2 classes, but the label has 3"),
        ],
    )
    def test_others_are_refused(self, predictions, message):
        with pytest.raises(ValueError, match=message):
            named_predictions(predictions, THREE)


class TestRegression:
    @pytest.mark.parametrize(
        "predictions",
        [
            {"value": tensor(1.5, 2.5), "logits": tensor([9], [9])},
            {"dense": tensor([1.5], [2.5])},
            tensor([1.5], [2.5]),
        ],
    )
    def test_the_value_is_one_number_a_row(self, predictions):
        assert named_predictions(predictions, ())["value"].numpy().tolist() == [1.5, 2.5]


class TestWithheld:
    ERRORS = tf.constant(["", "age: missing_value", ""])

    @pytest.mark.parametrize(
        ("values", "withheld_"),
        [
            (np.array([1, 2, 3], np.float32), [1, np.nan, 3]),
            (np.array([[1, 2], [3, 4], [5, 6]], np.float16), [[1, 2], [np.nan, np.nan], [5, 6]]),
            (np.array([1, 2, 3], np.int64), [1, -1, 3]),
            (np.array([True, True, True]), [True, False, True]),
            (np.array([b"a", b"b", b"c"], object), [b"a", b"", b"c"]),
        ],
    )
    def test_a_row_with_an_error_has_no_prediction(self, values, withheld_):
        batch = tf.TensorSpec([None, *values.shape[1:]], tf.as_dtype(values.dtype))
        mask = tf.function(lambda x, errors: withheld({"class": x}, errors), [batch, tf.TensorSpec([None], tf.string)])
        masked = mask(values, self.ERRORS)
        np.testing.assert_array_equal(masked["class"].numpy(), np.array(withheld_, masked["class"].numpy().dtype))
        assert masked["error"].numpy().tolist() == self.ERRORS.numpy().tolist()

    def test_a_model_may_not_predict_an_error_of_its_own(self):
        with pytest.raises(ValueError, match=r"the model predicts 'error'.*rename the prediction"):
            withheld({"value": tensor(1), "error": tensor(2)}, None)


class TestWrappedEstimators:
    def predict(self, estimator, dataset):
        mode, options = tf_estimator.ModeKeys.PREDICT, InputOptions(batch_size=16)
        batches = estimator.predict(
            lambda: input_fn(dataset, "eval", mode=mode, options=options), yield_single_examples=False
        )
        return next(iter(batches))

    def test_the_model_never_sees_the_key(self, people, make_estimator, tmp_path):
        feature_names = []

        def model_fn(features, labels, mode):
            feature_names.append(set(features))
            logits = tf.keras.layers.Dense(1)(features["scores"])
            step = tf.compat.v1.train.get_or_create_global_step()
            return tf_estimator.EstimatorSpec(
                mode, predictions={"logits": logits}, loss=tf.reduce_mean(logits), train_op=step.assign_add(1)
            )

        estimator = make_estimator(people, steps=1, estimator=tf_estimator.Estimator(model_fn, str(tmp_path)))
        assert "key" in self.predict(estimator, people)
        assert len(feature_names) == 2
        assert not any("id" in features for features in feature_names)
