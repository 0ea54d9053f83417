"""TensorFlow Serving's REST API, against the exported model itself, one row at a time; and plain rows.

A plain row has values as they stand in a file, and a bad one gets an error of its own.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pytest

from millrace.label import command
from schemas.exports.model import ServedModel
from tests.support.model_server import Client, serving
from tests.support.stored_requests import stored_rows

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


def assert_same(prediction: dict[str, Any], expected: dict[str, Any]) -> None:
    assert prediction.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, bytes):
            assert prediction[name] == value.decode()
        else:
            np.testing.assert_allclose(np.float32(prediction[name]), value, rtol=1e-5, atol=1e-6, err_msg=name)


ROWS = [GOOD, MISSING, NO_HOURS, BAD_PET, NEGATIVE, HUGE]


def test_rows_are_answered_as_the_model_answers_each_alone(client, model):
    status, answer = client.predict({"instances": ROWS})
    assert status == 200
    for row, prediction in zip(ROWS, answer["predictions"], strict=True):
        assert_same(prediction, alone(model, row))
    errors = [prediction["error"] for prediction in answer["predictions"]]
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


def test_binary_strings_are_sent_as_base64(client):
    encoded = {**GOOD, "work": {"b64": base64.b64encode(b" Private").decode()}}
    _, plain = client.predict({"instances": [GOOD]})
    assert client.predict({"instances": [encoded]}) == (200, plain)
    status, answer = client.predict({"instances": [{**GOOD, "id": {"b64": "/w=="}}]})
    assert (status, answer["predictions"][0]["error"]) == (200, "id: not_utf8")
    assert answer["predictions"][0]["key"] == {"b64": "/w=="}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            [],
            '"instances" (rows) or "inputs" (columns); found a list of 0: {"instances": [{"age"',
        ),
        (GOOD, "; found neither: "),
        ({"instances": [GOOD], "inputs": {}}, "; found both: "),
        ({"instances": []}, "expected a list of rows, at least one"),
        ({"instances": {}}, "expected a list of rows"),
        ({"instances": [GOOD, 5]}, "instances[1]: found the number 5; expected an object with age"),
        (
            {"instances": [{k: v for k, v in GOOD.items() if k != "pet"}]},
            "instances[0]: pet: is not in the row; takes a list of 3 numbers (null where one is missing)",
        ),
        (
            {"instances": [{"Pet" if k == "pet" else k: v for k, v in GOOD.items()}]},
            "a list of 3 numbers (null where one is missing). It has 'Pet', which is not 'pet': rename one of them",
        ),
        ({"instances": [GOOD, {**GOOD, "age": "old"}]}, "instances[1]: age: not_a_number (found 'old', expected a"),
        ({"instances": [{**GOOD, "work": [5]}]}, "instances[0]: work: found a list of 1; takes a string"),
        ({"instances": [{**GOOD, "pet": [1, 0]}]}, "pet: wrong_number_of_values (2, expected 3)"),
        ({"instances": [GOOD], "signature_name": "nope"}, "signature_name: the string 'nope'; expected one of"),
        ({"instances": [GOOD], "signature_name": ["x"]}, "signature_name: a list of 1"),
        ({"inputs": {"age": [1]}}, '"inputs", row 0: scores: is not in the row'),
        ({"inputs": [GOOD]}, "expected an object of columns"),
        (
            {"inputs": {k: [v] * (1 + (k == "age")) for k, v in GOOD.items()}},
            "columns of one length; found id 1, age 2, scores 1",
        ),
        ({"inputs": GOOD}, "expected a list with a value for each row"),
        ({"instances": [GOOD, GOOD], "ids": ["a"]}, '"ids": expected 2 different ids'),
        ({"instances": [GOOD, GOOD], "ids": ["a", "a"]}, '"ids": expected 2 different ids'),
        ({"instances": [GOOD], "id": "x" * 129}, '"id": expected 1 to 128'),
    ],
)
def test_what_a_request_may_not_hold(client, body, message):
    status, answer = client.predict(body)
    assert status == 400
    assert message in answer["error"]
    assert client.predict({"instances": [GOOD]})[0] == 200  # on the same connection


def test_addresses(client, server, people_export):
    version = people_export.rpartition("/")[2]
    _, expected = client.predict({"instances": [GOOD]})
    assert client.headers["x-model-version"] == version
    assert client.post(f"{client.model}/versions/{version}:predict", {"instances": [GOOD]}) == (200, expected)
    for path in (client.model, f"{client.model}/versions/{version}"):
        assert client.get(path)[1]["model_version_status"][0]["state"] == "AVAILABLE"
    for path in ("/v1/models/nope:predict", f"{client.model}/versions/3:predict"):
        status, answer = client.post(path, {"instances": [GOOD]})
        served = "the model served here is people" if "models/nope:" in path else f"version {version} is in service"
        assert (status, answer["error"].endswith(f"; {served}")) == (404, True)
    assert client.get("/v1/models/nope")[0] == client.get(f"{client.model}/versions/3")[0] == 404
    for path in ("/nowhere", "/", "/predct"):
        status, answer = client.get(path)
        assert status == 404
        assert answer["error"].startswith(f"GET {path}: there is nothing here; predictions: POST /predict, or POST /v1")
    for method, path in (("GET", "/predict"), ("PUT", f"{client.model}:predict")):
        assert client.ask(method, path)[1]["error"].startswith(f"{method}: predictions are asked for by POST")
        assert client.headers["allow"] == "POST"
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


def test_plain_rows_are_answered_by_class(client, people_export):
    without_key = {name: value for name, value in GOOD.items() if name != "id"}
    status, answer = client.post("/predict", [GOOD, without_key])
    request_id = client.headers["x-request-id"]
    assert status == 200
    _, expected = client.predict({"instances": [GOOD]})
    probabilities = dict(zip(["<=50K", ">50K"], expected["predictions"][0]["probabilities"], strict=True))
    prediction, other = answer["predictions"]
    assert answer["model_version"] == people_export.rpartition("/")[2] == client.headers["x-model-version"]
    assert prediction.pop("id") == f"{request_id}/0"
    assert prediction.pop("probabilities") == pytest.approx(probabilities, rel=1e-5)  # float32, of two rows at once
    assert prediction == {"key": "k1", "class": expected["predictions"][0]["class"]}
    assert (other["key"], other["class"]) == ("", prediction["class"])


@pytest.mark.parametrize(
    ("changed", "same_as"),
    [
        ({"age": "40.5"}, {}),
        ({"age": " 40.5 ", "scores": ["1", "2.5", 3]}, {}),
        ({"age": "?"}, {"age": float("nan")}),
        ({"age": None, "scores": [None, 2.5, 3]}, {"age": float("nan"), "scores": [float("nan"), 2.5, 3]}),
        ({"work": None}, {"work": ""}),
        ({"title": 7}, {"title": "7"}),
        ({"age": float("nan"), "work": float("nan")}, {"age": float("nan"), "work": "?"}),
        ({"income": ">50K", "w": 3}, {}),  # the label and the weight are not read
    ],
)
def test_values_as_in_a_file(client, changed, same_as):
    (prediction,) = client.post("/predict", {"rows": [{**GOOD, **changed}], "id": "x"})[1]["predictions"]
    (expected,) = client.predict({"instances": [{**GOOD, **same_as}]})[1]["predictions"]
    assert list(prediction["probabilities"].values()) == expected["probabilities"]


def _by_the_files_names(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose vectors are columns, as in the file."""
    scores, pets = row["scores"], row["pet"]
    return {
        **{name: value for name, value in row.items() if name not in ("scores", "pet")},
        **{f"s{i}": value for i, value in enumerate(scores)},
        **{f"pet{i}": value for i, value in enumerate(pets)},
    }


def test_columns_have_the_files_names_or_those_of_features(client):
    row = _by_the_files_names(GOOD)
    (expected,) = client.predict({"instances": [GOOD]})[1]["predictions"]
    (plain,) = client.post("/predict", [row])[1]["predictions"]
    assert list(plain["probabilities"].values()) == expected["probabilities"]
    assert client.predict({"instances": [row]}) == (200, {"predictions": [expected]})
    status, answer = client.predict({"inputs": {name: [value, value] for name, value in row.items()}})
    assert (status, answer["outputs"]["class"]) == (200, [expected["class"]] * 2)
    _, plain = client.post("/predict", [{name: value for name, value in row.items() if name != "s1"}])
    assert plain["predictions"][0]["error"].startswith("scores: is not in the row")


def test_columns_that_the_schema_does_not_declare_are_ignored_with_a_note(client):
    note = "the column 'colour' is ignored: the schema does not declare it"
    rows = [{**GOOD, "colour": "red", "income": "x"}, GOOD]
    plain = client.post("/predict", rows)[1]
    assert plain["note"] == note
    assert plain["predictions"][0]["probabilities"] == pytest.approx(plain["predictions"][1]["probabilities"])
    for body in ({"instances": rows}, {"inputs": {name: [value] for name, value in rows[0].items()}}):
        status, answer = client.predict(body)
        assert (status, answer["note"]) == (200, note)


BAD: list[tuple[dict[str, object], str]] = [
    ({"age": "old"}, "age: not_a_number (found 'old', expected a decimal number)"),
    ({"age": "1e99"}, "age: out_of_range (found '1e99', expected a number that fits a float32)"),
    ({"age": 1e99}, "age: out_of_range"),
    ({"age": True}, "age: not_a_number (found 'True', expected a decimal number)"),
    ({"age": [1]}, "age: found a list of 1; takes a number"),
    ({"hours": None}, "hours: missing_value"),
    ({"scores": [1, 2]}, "scores: wrong_number_of_values (2, expected 3)"),
    ({"scores": [1, "x", 2]}, "scores: not_a_number (found 'x'"),
    ({"scores": [1, {}, 2]}, "scores: found an object; takes a list of 3 numbers"),
    ({"work": [1.5]}, "work: found a list of 1; takes a string"),
    ({"work": {"b64": "?"}}, "work: found text that is not base64"),
    ({"member": "maybe"}, "member: not_a_bool"),
]


def test_half_of_a_surrogate_pair_fails_its_row_alone(client):
    status, answer = client.post("/predict", [GOOD, {**GOOD, "work": "\ud83d"}, {**GOOD, "\udc00": 1}])
    good, bad, noted = answer["predictions"]
    assert (status, "error" in good, bad["error"]) == (
        200,
        False,
        "work: holds half of a surrogate pair, which is no character",
    )
    assert noted["probabilities"] == good["probabilities"]
    assert answer["note"] == r"the column '\udc00' is ignored: the schema does not declare it"


def test_a_bad_row_fails_alone(client):
    rows = [row for changed, _ in BAD for row in ({**GOOD, **changed}, GOOD)]
    lacking = {name: value for name, value in GOOD.items() if name != "pet"}
    ends: list[Any] = [lacking, None, [], NEGATIVE, {**lacking, "pet now": 1}]
    status, answer = client.post("/predict", [*rows, *ends])
    assert status == 200
    predictions = answer["predictions"]
    assert [row["id"].rpartition("/")[2] for row in predictions] == [str(i) for i in range(len(rows) + len(ends))]
    for (_, message), bad, good in zip(BAD, predictions[0::2], predictions[1::2], strict=False):
        assert bad["error"].startswith(message)
        assert {"class", "probabilities"}.isdisjoint(bad)
        assert "error" not in good
        assert good["probabilities"] == pytest.approx(predictions[1]["probabilities"], rel=1e-5)
    errors = [row["error"] for row in predictions[-len(ends) :]]
    problem = "pet: is not in the row; takes a list of 3 numbers (null where one is missing)"
    assert errors[0] == f"{problem}; the file calls it 'pet0', 'pet1', 'pet2'"
    assert errors[1].startswith("found null; expected an object with age, scores")
    assert errors[2].startswith("found a list of 0; expected an object")
    assert errors[3] == "hours: not_finite; `transform: log` is for values above -1"
    assert errors[4] == f"{problem}; it has 'pet now'; did you mean pet?"
    for body, description in ((GOOD, 'an object without "rows"'), ([], "a list of 0"), ({"rows": None}, "null")):
        status, answer = client.post("/predict", body)
        form = '[{"age": ..., "scores": ..., "hours": ..., "work": ..., "city": ... and 5 more}]'
        error = f"found {description}; expected a list of rows, at least one, each an object: {form}"
        assert (status, answer["error"]) == (400, error)


def test_what_is_stored_of_rows_without_a_prediction(people_export, tmp_path, capfd):
    """Each with its error and what was sent, once per id; nothing joins a label to them."""
    wrong = [{**GOOD, **changed} for changed, _ in BAD]
    sent: list[Any] = [
        *wrong,
        {name: value for name, value in GOOD.items() if name != "pet"},
        None,
        [],
        "x" * 100,
        GOOD,
    ]
    ids = [f"r{i}" for i in range(len(sent))]
    folder, answers = tmp_path / "store", []
    for again in range(2):
        with serving(people_export, store=str(folder)) as server, Client(server) as client:
            status, answer = client.post("/predict", {"rows": sent, "ids": ids})
            assert status == 200
            answers.append(answer["predictions"])
            other = client.post("/predict", {"rows": [4], "id": ids[-3]})[1]["predictions"]
            assert "is the id of another request, with other values" in other[0]["error"]
            assert client.post("/predict", {"rows": [4], "id": f"alone-{again}"})[0] == 200
    assert answers[0] == answers[1]
    rows_by_id = {row["id"]: row for row in stored_rows(folder)}
    assert list(rows_by_id) == [*ids, "alone-0", "alone-1"]
    for row_id, row, prediction in zip(ids, sent, answers[0], strict=True):
        stored = rows_by_id[row_id]
        assert stored["error"].decode() == prediction.get("error", "")
        assert stored["error"] or json.loads(stored["answer"])["class"] == prediction["class"]
        if stored["sent"] is not None:
            assert json.loads(stored["sent"]) == row
    read = [row_id for row_id in rows_by_id if rows_by_id[row_id]["sent"] is None]
    assert read == ["r2", "r5", "r11", "r16"]  # the model refused their values, or none of them
    assert all((rows_by_id[row_id]["line"] == b"") == (rows_by_id[row_id]["sent"] is not None) for row_id in rows_by_id)
    labels = tmp_path / "labels.csv"
    labels.write_text("".join(f"{line}\n" for line in ("_id,income,w", *(f"{row_id},>50K,1" for row_id in ids))))
    argv = [str(folder), str(labels), "--output", str(tmp_path / "out.csv"), "--json"]
    capfd.readouterr()
    assert command.main(argv) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["written"], report["not_predicted"], report["unlabelled"]) == (1, len(sent) - 1, 2)


def test_a_row_that_is_nested_too_deeply_to_be_stored_is_refused(client):
    status, answer = client.post("/predict", b"[" * 400 + b"]" * 400)
    assert (status, answer) == (400, {"error": "row 0: is nested too deeply"})


@pytest.mark.parametrize("body", [[], {}, {"rows": {}}, 3, "x", None, b"[NaN"])
def test_what_is_no_list_of_rows(client, body):
    assert client.post("/predict", body)[0] == 400
