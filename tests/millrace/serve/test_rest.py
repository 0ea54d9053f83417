"""TensorFlow Serving's REST API, against the exported model itself, one row at a time."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.exports.model import ServedModel
from tests.support.model_server import Client, serving

pytestmark = pytest.mark.slow

GOOD: dict[str, Any] = {
    "id": "k1",
    "age": 40.5,
    "scores": [1, 2.5, 3],
    "hours": 7,
    "work": " Private",
    "city": "Oslo",
    "pet": [0, 1, 0],
    "member": "yes",
    "title": "The big cat",
    "words": "a b",
}
MISSING = {**GOOD, "age": math.nan, "work": "?", "scores": [math.nan, 1, 2]}
NO_HOURS, BAD_PET = {**GOOD, "hours": math.nan}, {**GOOD, "pet": [1, 1, 0]}
NEGATIVE, HUGE = {**GOOD, "hours": -5}, {**GOOD, "scores": [1e300, 0, 0]}


@pytest.fixture(scope="module")
def server(people_export):
    with serving(people_export) as server:
        yield server


@pytest.fixture(scope="module")
def model(people_export):
    with ServedModel(people_export) as model:
        yield model


@pytest.fixture
def client(server):
    with Client(server) as client:
        yield client


def alone(model, row) -> dict[str, Any]:
    """The model's own answer to one row."""
    with np.errstate(over="ignore"):
        inputs = {
            name: np.array([value.encode()], object) if isinstance(value, str) else np.array([value], np.float32)
            for name, value in row.items()
        }
    signature = "serving_default" if "id" in row else "without_key:serving_default"
    return {name: values[0] for name, values in model.predict(inputs, signature=signature).items()}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, bytes):
            assert found[name] == value.decode()
        else:
            np.testing.assert_allclose(np.float32(found[name]), value, rtol=1e-5, err_msg=name)


ROWS = [GOOD, MISSING, NO_HOURS, BAD_PET, NEGATIVE, HUGE]


def test_rows_are_answered_as_the_model_answers_each_alone(client, model):
    status, answer = client.predict({"instances": ROWS})
    assert status == 200
    for row, found in zip(ROWS, answer["predictions"], strict=True):
        assert_same(found, alone(model, row))
    errors = [found["error"] for found in answer["predictions"]]
    assert errors == ["", "", "hours: missing_value", "pet: not_one_hot", "hours: not_finite", "scores: out_of_range"]
    assert all(math.isnan(p) for p in answer["predictions"][2]["probabilities"])


@pytest.mark.parametrize("rows", [ROWS, ROWS[:2]])
def test_columns_are_answered_alike_by_column(client, rows):
    _, by_row = client.predict({"instances": rows})
    status, by_column = client.predict({"inputs": {name: [row[name] for row in rows] for name in GOOD}})
    assert status == 200
    assert by_column["outputs"].keys() == by_row["predictions"][0].keys()
    for name, values in by_column["outputs"].items():
        np.testing.assert_equal(values, [row[name] for row in by_row["predictions"]])


def test_numbers_have_the_digits_of_a_float32(client):
    for rows in ([GOOD], [GOOD, NO_HOURS]):
        status, answer = client.predict({"instances": rows})
        assert status == 200
        for number in answer["predictions"][0]["probabilities"]:
            assert str(np.float32(number)) == str(number)


@pytest.mark.parametrize("row", [GOOD, NO_HOURS])
def test_without_the_key(client, model, row):
    row = {name: value for name, value in row.items() if name != "id"}
    status, answer = client.predict({"signature_name": "without_key:serving_default", "instances": [row]})
    assert status == 200
    expected: dict[str, Any] = {**alone(model, row), "key": b""}
    assert_same(answer["predictions"][0], expected)


def test_examples(client, model):
    feature = tf.train.Feature

    def example(**features) -> dict:
        message = tf.train.Example(features=tf.train.Features(feature=features))
        return {"b64": base64.b64encode(message.SerializeToString()).decode()}

    whole = {
        name: feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        if isinstance(value, str)
        else feature(float_list=tf.train.FloatList(value=np.atleast_1d(value)))
        for name, value in GOOD.items()
    }
    little = {"hours": whole["hours"], "pet": whole["pet"], "age": feature()}
    signature = "examples:serving_default"
    instances = [{"examples": example(**whole)}, example(**little), example()]
    status, answer = client.predict({"signature_name": signature, "instances": instances})
    assert status == 200
    found = answer["predictions"]
    sent = [base64.b64decode(example(**each)["b64"]) for each in (whole, little, {})]
    for i, each in enumerate(sent):
        expected = model.predict({"examples": [each]}, signature=signature)
        assert_same(found[i], {name: values[0] for name, values in expected.items()})
    wrong = {
        "int64_list; expected a float_list": {"age": feature(int64_list=tf.train.Int64List(value=[1]))},
        "found 2 values; expected 1": {"age": feature(float_list=tf.train.FloatList(value=[1, 2]))},
    }
    for said, features in wrong.items():
        status, answer = client.predict({"signature_name": signature, "instances": [example(**features)]})
        assert (status, said in answer["error"]) == (400, True), answer
    _, answer = client.predict({"signature_name": signature, "inputs": {"examples": [{"b64": "AAAA"}]}})
    assert "not a serialized tf.Example" in answer["error"]


def test_binary_strings_are_sent_as_base64(client):
    encoded = {**GOOD, "work": {"b64": base64.b64encode(b" Private").decode()}}
    _, plain = client.predict({"instances": [GOOD]})
    assert client.predict({"instances": [encoded]}) == (200, plain)
    status, answer = client.predict({"instances": [{**GOOD, "id": {"b64": "/w=="}}]})
    assert (status, answer["predictions"][0]["error"]) == (200, "id: not_utf8")
    assert answer["predictions"][0]["key"] == {"b64": "/w=="}


def test_classify(client):
    _, expected = client.predict({"instances": [GOOD]})
    example = {name: [value] if isinstance(value, str) else value for name, value in GOOD.items()}
    work = example.pop("work")
    status, answer = client.post(f"{client.model}:classify", {"examples": [example], "context": {"work": work}})
    assert status == 200
    pairs = zip(["<=50K", ">50K"], expected["predictions"][0]["probabilities"], strict=True)
    assert answer == {"results": [[list(pair) for pair in pairs]]}
    status, answer = client.post(f"{client.model}:classify", {"examples": [GOOD, NO_HOURS]})
    assert (status, answer["error"]) == (400, "examples[1]: has no prediction: hours: missing_value")
    status, answer = client.post(f"{client.model}:regress", {"examples": [GOOD]})
    assert (status, answer["error"]) == (400, "the model does not regress; use :classify or :predict")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "the body is a list of 0; expected an object"),
        ({}, 'expected one of "instances" (rows) and "inputs" (columns)'),
        ({"instances": [GOOD], "inputs": {}}, "expected one of"),
        ({"instances": []}, "expected a list of rows, at least one"),
        ({"instances": {}}, "expected a list of rows"),
        ({"instances": [GOOD, 5]}, "instances[1]: found the number 5; expected an object"),
        ({"instances": [{**GOOD, "agee": 1}]}, "instances[0]: has 'agee', which the model does not take"),
        (
            {"instances": [{k: v for k, v in GOOD.items() if k != "pet"}]},
            "lacks 'pet', which takes a list of 3 numbers",
        ),
        ({"instances": [{**GOOD, "age": "40"}]}, "instances[0], 'age': found the string '40'; takes a number"),
        ({"instances": [{**GOOD, "age": None}]}, "found null; takes a number (NaN where it is missing)"),
        ({"instances": [{**GOOD, "work": 5}]}, "'work': found the number 5; takes a string"),
        ({"instances": [{**GOOD, "pet": [1, 0]}]}, "'pet': found a list of 2; takes a list of 3 numbers"),
        ({"instances": [GOOD], "signature_name": "nope"}, "signature_name: the string 'nope'; expected one of"),
        ({"instances": [GOOD], "signature_name": ["x"]}, "signature_name: a list of 1"),
        ({"inputs": {"age": [1]}}, "lacks"),
        (
            {"inputs": {k: [v] * (1 + (k == "age")) for k, v in GOOD.items()}},
            "columns of different lengths: id 1, age 2",
        ),
        ({"inputs": GOOD}, "expected a list with a value for each row"),
        ({"instances": [GOOD, GOOD], "ids": ["a"]}, '"ids": expected 2 different ids'),
        ({"instances": [GOOD, GOOD], "ids": ["a", "a"]}, '"ids": expected 2 different ids'),
        ({"instances": [GOOD], "id": "x" * 129}, '"id": expected 1 to 128'),
    ],
)
def test_what_a_request_may_not_hold(client, body, said):
    status, answer = client.predict(body)
    assert status == 400
    assert said in answer["error"]
    assert client.predict({"instances": [GOOD]})[0] == 200  # on the same connection


def test_addresses(client, server, people_export):
    version = people_export.rpartition("/")[2]
    _, expected = client.predict({"instances": [GOOD]})
    assert client.headers["x-model-version"] == version
    for middle in (f"/versions/{version}", "/labels/stable"):
        assert client.post(f"{client.model}{middle}:predict", {"instances": [GOOD]}) == (200, expected)
        assert client.get(f"{client.model}{middle}")[1]["model_version_status"][0]["state"] == "AVAILABLE"
    for path in (
        "/v1/models/nope:predict",
        f"{client.model}/versions/3:predict",
        f"{client.model}/labels/nope:predict",
    ):
        assert client.post(path, {"instances": [GOOD]})[0] == 404
    assert client.get("/v1/models/nope")[0] == client.get(f"{client.model}/versions/3")[0] == 404
    assert client.get("/nowhere") == (404, {"error": "GET /nowhere: there is nothing here"})
    assert client.ask("DELETE", f"{client.model}")[0] == 405
    assert client.get("/healthz")[0] == 200
    assert client.get("/readyz") == (200, {"status": "ready", "version": version})


def test_metadata(client, people_export):
    status, answer = client.get(f"{client.model}/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "people", "signature_name": "", "version": people_export.rpartition("/")[2]}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    age, scores = (signatures["serving_default"]["inputs"][name] for name in ("age", "scores"))
    assert (age["dtype"], [dim["size"] for dim in age["tensor_shape"]["dim"]]) == ("DT_FLOAT", ["-1"])
    assert [dim["size"] for dim in scores["tensor_shape"]["dim"]] == ["-1", "3"]
    assert "id" not in signatures["without_key:serving_default"]["inputs"]
    assert signatures["serving_default"]["outputs"]["class"]["dtype"] == "DT_STRING"
    assert answer["millrace"]["classes"] == ["<=50K", ">50K"]
    assert answer["millrace"]["compared_records"] > 1


def test_ids_are_returned(client):
    client.predict({"instances": [GOOD]}, X_Request_Id="abc-1")
    assert client.headers["x-request-id"] == "abc-1"
    client.predict({"instances": [GOOD], "id": "mine"})
    assert client.headers["x-request-id"] == "mine"
    client.predict({"instances": [GOOD]})
    made = client.headers["x-request-id"]
    client.predict({"instances": [GOOD]})
    assert made != client.headers["x-request-id"]
    assert client.predict({"instances": [GOOD]}, X_Request_Id="a b")[0] == 400


def test_metrics_count_and_tell_no_values(client):
    client.predict({"instances": [{**GOOD, "title": "confidential"}, NO_HOURS]})
    status, text = client.get("/metrics")
    assert status == 200
    counts = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#"))
    assert float(counts['millrace_requests_total{kind="predict",status="200"}']) >= 1
    assert float(counts["millrace_row_errors_total"]) >= 1
    assert float(counts["millrace_rows_total"]) >= 2
    assert "confidential" not in text.decode()
