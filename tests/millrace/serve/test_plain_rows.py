"""Plain rows: values as they stand in a file, and an error of its own for each bad row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.label import command
from tests.millrace.serve.test_rest import GOOD
from tests.support.model_server import Client, serving
from tests.support.stored_requests import stored_rows

pytestmark = pytest.mark.slow


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
    for again in range(3):
        if again == 2:
            (folder / "ids.sqlite").unlink()  # and it is made again from the rows
        with serving(people_export, store=str(folder)) as server, Client(server) as client:
            status, answer = client.post("/predict", {"rows": sent, "ids": ids})
            assert status == 200
            answers.append(answer["predictions"])
            other = client.post("/predict", {"rows": [4], "id": ids[-3]})[1]["predictions"]
            assert "is the id of another request, with other values" in other[0]["error"]
            assert client.post("/predict", {"rows": [4], "id": f"alone-{again}"})[0] == 200
    assert answers[0] == answers[1] == answers[2]
    found = {row["_id"].decode(): row for row in stored_rows(folder)}
    assert list(found) == [*ids, "alone-0", "alone-1", "alone-2"]
    for row_id, row, said in zip(ids, sent, answers[0], strict=True):
        line = found[row_id]
        assert line["_error"].decode() == said.get("error", "")
        assert (line["_prediction"] == b"") == ("error" in said)
        if line["_sent"]:
            assert json.loads(line["_sent"]) == row
    read = [row_id for row_id in found if not found[row_id]["_sent"]]
    assert read == ["r2", "r5", "r11", "r17"]  # their values are in the columns: the model refused them, or none did
    cells = [[found[row_id][name] for name in ("age", "s0", "s1", "s2", "work")] for row_id in ("r0", "r3", "r7", "r9")]
    assert cells == [
        [b"old", b"1", b"2.5", b"3", b" Private"],
        [b"true", b"1", b"2.5", b"3", b" Private"],
        [b"40.5", b"1", b"x", b"2", b" Private"],
        [b"40.5", b"1", b"2.5", b"3", b"1.5"],
    ]
    labels = tmp_path / "labels.csv"
    labels.write_text("".join(f"{line}\n" for line in ("_id,income,w", *(f"{row_id},>50K,1" for row_id in ids))))
    argv = ["--store", str(folder), "--join", str(labels), "--output", str(tmp_path / "out"), "--json"]
    capfd.readouterr()
    assert command.main(argv) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["written"], told["not_predicted"], told["unlabelled"]) == (1, len(sent) - 1, 3)


def test_a_row_that_is_nested_too_deeply_to_be_stored_is_refused(client):
    status, answer = client.post("/predict", b"[" * 400 + b"]" * 400)
    assert (status, answer) == (400, {"error": "row 0: is nested too deeply"})


def test_only_bad_rows(client):
    status, answer = client.post("/predict", [3, 4])
    assert (status, [set(row) for row in answer["predictions"]]) == (200, [{"id", "error"}] * 2)


@pytest.mark.parametrize("body", [[], {}, {"rows": {}}, 3, "x", None, b'[{"age": NaN}]'])
def test_what_is_no_list_of_rows(client, body):
    assert client.post("/predict", body)[0] == 400
