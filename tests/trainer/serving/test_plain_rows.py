"""Plain rows: values as they stand in a file, and an error of its own for each bad row."""

from __future__ import annotations

import pytest

from tests.support.model_server import Client, serving
from tests.trainer.serving.test_rest import GOOD


@pytest.fixture(scope="module")
def client(people_export):
    with serving(people_export) as server, Client(server) as client:
        yield client


def test_predictions(client, people_export):
    without_key = {name: value for name, value in GOOD.items() if name != "id"}
    status, answer = client.post("/predict", [GOOD, without_key])
    request_id = client.headers["x-request-id"]
    assert status == 200
    _, expected = client.predict({"instances": [GOOD]})
    probabilities = dict(zip(["<=50K", ">50K"], expected["predictions"][0]["probabilities"], strict=True))
    found, other = answer["predictions"]
    assert answer["model_version"] == people_export.rpartition("/")[2] == client.headers["x-model-version"]
    assert found.pop("id") == f"{request_id}/0"
    assert found.pop("probabilities") == pytest.approx(probabilities)
    assert found == {"key": "k1", "class": expected["predictions"][0]["class"]}
    assert (other["key"], other["class"]) == ("", found["class"])


@pytest.mark.parametrize(
    ("changed", "same_as"),
    [
        ({"age": "40.5"}, {}),
        ({"age": " 40.5 ", "scores": ["1", "2.5", 3]}, {}),
        ({"age": "?"}, {"age": float("nan")}),
        ({"age": None, "scores": [None, 2.5, 3]}, {"age": float("nan"), "scores": [float("nan"), 2.5, 3]}),
        ({"work": None}, {"work": ""}),
        ({"title": 7}, {"title": "7"}),
        ({"income": ">50K", "w": 3}, {}),  # the label and the weight are not read
    ],
)
def test_values_as_in_a_file(client, changed, same_as):
    (found,) = client.post("/predict", {"rows": [{**GOOD, **changed}], "id": "x"})[1]["predictions"]
    (expected,) = client.predict({"instances": [{**GOOD, **same_as}]})[1]["predictions"]
    assert list(found["probabilities"].values()) == expected["probabilities"]


BAD: list[tuple[dict[str, object], str]] = [
    ({"age": "old"}, "age: not_a_number (found 'old', expected a decimal number)"),
    ({"age": "1e99"}, "age: out_of_range (found '1e99', expected a number that fits a float32)"),
    ({"age": 1e99}, "age: out_of_range"),
    ({"age": True}, "age: found true; takes a number (NaN where it is missing)"),
    ({"age": [1]}, "age: found a list of 1; takes a number"),
    ({"hours": None}, "hours: missing_value"),
    ({"scores": [1, 2]}, "scores: found a list of 2; takes a list of 3 numbers"),
    ({"scores": [1, "x", 2]}, "scores: not_a_number (found 'x'"),
    ({"scores": [1, {}, 2]}, "scores: found an object among its values"),
    ({"work": 1.5}, "work: found the number 1.5; takes a string"),
    ({"work": {"b64": "?"}}, "work: found text that is not base64"),
    ({"member": "maybe"}, "member: not_a_bool"),
    ({"agee": 3}, "agee: the model takes no such feature; it takes age, scores"),
]


def test_a_bad_row_fails_alone(client):
    rows = [row for changed, _ in BAD for row in ({**GOOD, **changed}, GOOD)]
    lacking = {name: value for name, value in GOOD.items() if name != "pet"}
    status, answer = client.post("/predict", [*rows, lacking, None, []])
    assert status == 200
    found = answer["predictions"]
    assert [row["id"].rpartition("/")[2] for row in found] == [str(i) for i in range(len(rows) + 3)]
    for (_, said), bad, good in zip(BAD, found[0::2], found[1::2], strict=False):
        assert bad["error"].startswith(said)
        assert {"class", "probabilities"}.isdisjoint(bad)
        assert "error" not in good
        assert good["probabilities"] == pytest.approx(found[1]["probabilities"])
    errors = [row["error"] for row in found[-3:]]
    assert errors[0] == "pet: is not in the row; takes a list of 3 numbers (NaN where one is missing)"
    assert errors[1].startswith("found null; a row is an object with age, scores")
    assert errors[2].startswith("found a list of 0; a row is an object")


def test_only_bad_rows(client):
    status, answer = client.post("/predict", [3, 4])
    assert (status, [set(row) for row in answer["predictions"]]) == (200, [{"id", "error"}] * 2)


@pytest.mark.parametrize("body", [[], {}, {"rows": {}}, 3, "x", None, b'[{"age": NaN}]'])
def test_what_is_no_list_of_rows(client, body):
    assert client.post("/predict", body)[0] == 400
