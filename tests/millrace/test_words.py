"""A category, a key or a class is the same value however it comes in: as text, a float, an integer, a truth value.

Columns have the names of the file or of the features in every way in, and others are ignored.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import millrace
from beam_jobs import predict as bulk
from schemas.spec.features import Category
from schemas.spec.table import Schema
from tests.support.model_server import Client, serving
from tests.support.predicted import by_the_job, by_the_trainer, rows_of
from trainer import predict

DECKS = """\
name: decks
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: id, kind: key}
  - {name: deck, kind: category, missing: none}
  - {name: floor, kind: category, values: [1, 2.0, "3.0"]}
  - {name: paid, kind: category}
  - {name: member, kind: bool}
  - {name: fare, column: "Fare (£)", kind: numeric, missing: mean, missing_tokens: [-999]}
label: {name: bought, kind: category}
split: {by: [id], train: 0.8, eval: 0.1, test: 0.1}
"""
HEADER = "id,deck,floor,paid,member,Fare (£),bought"


def _row(i: int) -> str:
    """A row whose class follows from the deck, the floor and whether it is paid."""
    deck, floor, paid = ["", "1", "2", "3", "4.0"][i % 5], i % 3 + 1, ["TRUE", "FALSE"][i % 2]
    bought = (i % 5 + i % 3 + i % 2) % 2
    fare = {4: "-999", 5: "-999.0"}.get(i % 9, f"{i % 7}.5")
    return f"{1000 + i}{'.0' * (i % 2)},{deck},{floor},{paid},{['1', '0.0'][i % 2]},{fare},{['0', '1.0'][bought]}"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decks") / "decks.csv"
    path.write_text("\n".join([HEADER, *map(_row, range(300))]) + "\n")
    return path


@pytest.fixture(scope="module")
def data(raw: Path) -> millrace.Dataset:
    (raw.parent / "decks.yaml").write_text(DECKS)
    return millrace.preprocess(schema=raw.parent / "decks.yaml", input=raw, output=raw.parent / "data", quiet=True)


@pytest.fixture(scope="module")
def export(data: millrace.Dataset, raw: Path) -> str:
    options: dict[str, Any] = {"model": "softmax", "max_steps": 100, "quiet": True, "no_report": True, "seed": 1}
    return millrace.train(data_dir=data, model_dir=raw.parent / "model", **options).export_dir


@pytest.fixture(scope="module")
def expected(export: str, raw: Path) -> list[dict[str, Any]]:
    """What `millrace predict` says of the file."""
    return by_the_trainer(export, raw.parent, raw)[0]


def _assert_same(predictions: dict[str, np.ndarray], expected: list[dict[str, Any]]) -> None:
    assert predictions["error"].tolist() == [""] * len(expected)
    assert predictions["key"].tolist() == [line["key"] for line in expected]
    assert predictions["class"].tolist() == [line["class"] for line in expected]
    np.testing.assert_allclose(
        predictions["probabilities"], [list(line["probabilities"].values()) for line in expected], rtol=1e-5
    )


pytestmark = pytest.mark.slow


def test_a_dataset_holds_each_word_in_one_spelling(data: millrace.Dataset) -> None:
    assert isinstance(data.schema, Schema)
    floor = data.schema.features[2]
    assert isinstance(floor, Category)
    assert floor.values == ("1", "2", "3")
    words = {item["name"]: {v["value"] for v in item["splits"]["train"].get("top_values", ())} for item in
             data.statistics["features"]}  # fmt: skip
    assert words["deck"] == {"1", "2", "3", "4"}
    assert words["paid"] == {"True", "False"}
    fares = next(item["splits"]["train"] for item in data.statistics["features"] if item["name"] == "fare")
    assert (fares["min"], fares["missing"] > 40) == (0.5, True)
    page = (Path(data.path) / data.opened.manifest.run / "report.html").read_text()
    assert "<h3>fare <span>numeric</span>" in page
    assert "<h3>deck <span>category</span>" in page
    assert all(record["id"].isdecimal() for record in data.head(300))


def test_the_file_by_pandas_by_arrow_and_by_rows(export: str, raw: Path, expected: list[dict[str, Any]]) -> None:
    frame = pd.read_csv(raw)
    assert (frame.deck.dtype.kind, frame.paid.dtype.kind) == ("f", "b")
    text = pd.read_csv(raw, dtype=str, keep_default_na=False)
    with millrace.load_model(export) as model:
        for rows in (
            frame,
            frame.astype({"id": "int64", "deck": "Int64", "floor": "float32", "paid": object}),
            frame.to_dict("records"),
            text,
            text.to_dict("list"),
            text.replace({"paid": {"TRUE": "true", "FALSE": "False"}}),
            pa.Table.from_pandas(frame),
        ):
            _assert_same(model.predict(rows), expected)
    assert len({line["class"] for line in expected}) == 2
    assert [line["key"] for line in expected[:2]] == ["1000", "1001"]


def test_the_file_over_http(export: str, raw: Path, expected: list[dict[str, Any]]) -> None:
    rows = pd.read_csv(raw).to_dict("records")
    text = pd.read_csv(raw, dtype=str, keep_default_na=False).drop(columns="bought").to_dict("records")
    with serving(export) as server, Client(server) as client:
        status, answer = client.post("/predict", json.dumps(rows).encode())  # with NaN
        assert status == 200
        assert [row["class"] for row in answer["predictions"]] == [line["class"] for line in expected]
        assert [row["key"] for row in answer["predictions"]] == [line["key"] for line in expected]
        for spelled in (1, 1.0, "1", "1.0", " 1.0 "):
            row = {**rows[1], "deck": spelled, "paid": True, "member": spelled}
            (prediction,) = client.post("/predict", [row])[1]["predictions"]
            same = {**row, "deck": "1", "paid": "TRUE", "member": "1"}
            (reference,) = client.post("/predict", [same])[1]["predictions"]
            assert prediction["probabilities"] == reference["probabilities"]
        status, answer = client.predict({"instances": [{**row, "Fare (£)": float(row["Fare (£)"])} for row in text]})
        assert status == 200
        assert [row["class"] for row in answer["predictions"]] == [line["class"] for line in expected]


def test_the_file_by_the_job(export: str, raw: Path, expected: list[dict[str, Any]], tmp_path: Path) -> None:
    predictions = rows_of(tmp_path / "out", by_the_job(export, tmp_path / "out", raw))
    assert [(row["key"], row["class"]) for row in predictions] == [(line["key"], line["class"]) for line in expected]


@pytest.fixture
def renamed(raw: Path, tmp_path: Path) -> Path:
    """The file without the label, with a column more, and with decks and floors that training never saw."""
    frame = pd.read_csv(raw, dtype=str, keep_default_na=False).drop(columns="bought")
    frame.loc[:19, "deck"] = "9"
    frame.loc[:4, "floor"] = "7.0"
    frame.insert(2, "colour", "red")
    frame.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv"


UNKNOWN = [
    "20 of 300 rows have a value of `deck` that training never saw",
    "5 of 300 rows have a value of `floor` that is not among the schema's `values`",
]
IGNORED = "the column 'colour' is ignored: the schema does not declare it"


def test_values_that_training_never_saw_and_further_columns_are_told(
    export: str, renamed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--saved_model", export, "--input", str(renamed)]
    assert predict.main([*argv, "--output", str(tmp_path / "p.jsonl")]) == 0
    out, err = capsys.readouterr()
    assert [line.removeprefix("note       ") for line in out.splitlines() if line.startswith("note")] == UNKNOWN
    assert [line for line in err.splitlines() if "colour" in line] == [f"note: {IGNORED}"]
    assert bulk.main([*argv, "--output", str(tmp_path / "out"), "--quiet", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unknown"] == {"deck": 20, "floor": 5}
    assert report["notes"] == [IGNORED, *UNKNOWN]
    with millrace.load_model(export) as model, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(pd.read_csv(renamed))
        assert [str(warning.message) for warning in caught] == [IGNORED, *UNKNOWN]
        assert {warning.filename for warning in caught} == {__file__}
        model.predict([])
        assert len(caught) == 3
