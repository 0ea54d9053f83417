"""What Python code may give a model that is no row: an error that names the row and the feature, or an empty answer."""

from __future__ import annotations

import datetime as dt
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import millrace
from millrace.model import feature_values, image_request, row_request
from millrace.serve.model import Interface
from millrace.serve.requests import plain_rows
from schemas.dataset import OpenDataset
from schemas.errors import UsageError
from schemas.exports.model import inputs_of
from schemas.spec.images import ImageSchema
from schemas.spec.loader import load_schema
from tests.support.csv_datasets import PEOPLE
from tests.support.csv_reading import table_schema
from tests.support.training import TrainedModel
from tests.trainer.conftest import patterns, patterns_model, wages  # noqa: F401 - fixtures

SCHEMA = table_schema(PEOPLE)
SHIPPED = Path(__file__).parents[2] / "schemas"
ROW: dict[str, Any] = {
    "id": "k1", "age": 40, "scores": [1, 2, 3], "hours": 7, "work": "Private", "city": "Oslo", "pet": [0, 1, 0],
    "member": "yes", "title": "The cat", "words": "a b",
}  # fmt: skip
KNOWN = "rows are a list of dicts, a dict of columns, a DataFrame or an Arrow table; "


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"age": [5]}, r"row 1, age: found a list of 1; takes a number \(null where it is missing\)"),
        ({"age": {"a": 5}}, "row 1, age: found an object; takes a number"),
        ({"age": np.array([5])}, r"row 1, age: found ndarray array\(\[5\]\); takes a number"),
        ({"age": 10**400}, "row 1, age: found an integer of too many digits; takes a number"),
        ({"age": 1 + 2j}, r"row 1, age: found complex \(1\+2j\); takes a number"),
        ({"age": pd.Timestamp("2020-01-01")}, "row 1, age: found Timestamp Timestamp.*; takes a number"),
        ({"age": "\ud800"}, "row 1, age: holds half of a surrogate pair, which is no character"),
        ({"scores": 5}, "row 1, scores: found the number 5; takes a list of 3 numbers"),
        ({"scores": [1, [2], 3]}, "row 1, scores: found a list of 1; takes a list of 3 numbers"),
        ({"work": ["Private"]}, "row 1, work: found a list of 1; takes a string, or bytes"),
        ({"work": "Priv\udc80ate"}, "row 1, work: holds half of a surrogate pair"),
    ],
)
def test_a_value_that_no_cell_holds_is_refused_by_row_and_feature(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        row_request([ROW, {**ROW, **changed}], SCHEMA)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, KNOWN + "found NoneType"),
        (5, KNOWN + "found int"),
        ("work", KNOWN + "found str"),
        ([None], KNOWN + "row 0 is NoneType"),
        ([{}, {}], "no column age, scores, hours"),
        ({**{name: [value] for name, value in ROW.items()}, "age": [1, 2]}, "columns of different lengths: age 2, "),
        (pd.DataFrame(index=range(3)), "no column age, scores, hours"),
        ([ROW, 3], KNOWN + "row 1 is int"),
        (dict.fromkeys(ROW, "abc"), "the column 'age' is str; expected a list with a value for each row"),
        (ROW, "the column 'age' is int; expected a list with a value for each row. For one row, give a list of one"),
        (
            pd.DataFrame([[1, 2, 3]], columns=["age", "age", "hours"]),
            "several columns have the name 'age'; expected each column's name once",
        ),
        (
            pa.Table.from_arrays([pa.array([1])] * 2, names=["hours", "hours"]),
            "several columns have the name 'hours'",
        ),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(data: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        row_request(data, SCHEMA)
    assert str(refused.value).startswith(message)


def test_every_scalar_is_the_text_of_a_cell() -> None:
    values = [2, 2.0, np.float32(2), True, np.bool_(True), "2.0", b"2", pd.NA, 2.5, dt.date(2020, 1, 2)]
    request = row_request([{**ROW, "work": value} for value in values], SCHEMA)
    expected = [b"2", b"2", b"2", b"True", b"True", b"2.0", b"2", b"", b"2.5", b"2020-01-02"]
    assert request.inputs["work"].tolist() == expected  # and the graph makes 2 of 2.0


def test_a_truth_value_is_no_number() -> None:
    """As in a file, whose cell would be `True`, and over HTTP."""
    frame = pd.DataFrame([ROW, ROW]).assign(age=[True, False])
    assert list(row_request(frame, SCHEMA).errors) == ["age: not_a_number"] * 2
    assert list(row_request([{**ROW, "scores": [1, np.bool_(True), 2]}], SCHEMA).errors) == ["scores: not_a_number"]


def test_a_column_that_is_there_twice_or_in_other_code_points_is_refused() -> None:
    size = "{name: size_cm, column: Größe, kind: numeric}"
    schema = table_schema(f"name: s\nformat: csv\nfeatures: [{size}]\nlabel: {{name: y, kind: numeric}}\n")
    interface = Interface(schema, inputs_of(schema), (), ())
    both = {"size_cm": 1, "Größe": 2}
    twice = "the feature 'size_cm' is there under two names: 'size_cm', 'Größe'. Leave the column out that is not meant"
    with pytest.raises(UsageError, match=twice):
        row_request([both], schema)
    assert plain_rows([both], interface, 1).errors[0].startswith(twice)
    unlike = r". It has 'Gro\u0308\xdfe', which looks like 'Gr\xf6\xdfe' and has other code points: rename one of them"
    decomposed = {unicodedata.normalize("NFD", "Größe"): 1}
    with pytest.raises(UsageError) as refused:
        row_request([decomposed], schema)
    assert str(refused.value).endswith(f"size_cm: expected one column 'size_cm', or the file's 'Größe'{unlike}")
    lacking = "size_cm: is not in the row; takes a number (null where it is missing)"
    expected = {0: f"{lacking}{unlike}", 1: f"{lacking}; the file calls it 'Größe'"}
    assert plain_rows([decomposed, {}], interface, 2).errors == expected


def test_a_column_has_its_own_tokens_of_missing_numbers() -> None:
    """From Python and over HTTP; in the other columns, these are no numbers."""
    own = "{name: own, kind: numeric, missing: mean, missing_tokens: ['-']}, {name: age, kind: numeric, missing: mean}"
    schema = table_schema(f"name: s\nformat: csv\nfeatures: [{own}]\nlabel: {{name: y, kind: numeric}}\n")
    rows = [{"own": "-", "age": ""}, {"own": "", "age": "1"}, {"own": "1", "age": "-"}]
    request = row_request(rows, schema)
    assert np.isnan(request.inputs["own"][0])
    assert np.isnan(request.inputs["age"][0])
    assert list(request.errors) == ["", "own: not_a_number", "age: not_a_number"]
    plain = plain_rows(rows, Interface(schema, inputs_of(schema), (), ()), len(rows))
    assert np.isnan(plain.arrays["own"][0])
    assert np.isnan(plain.arrays["age"][0])
    assert {row: error.split(" ")[0] for row, error in plain.errors.items()} == {1: "own:", 2: "age:"}


def test_an_arrow_table_is_read_by_the_names_of_its_columns() -> None:
    table = pa.Table.from_pylist([ROW, {**ROW, "age": None, "work": None}])
    request, expected = row_request(table, SCHEMA), row_request(table.to_pylist(), SCHEMA)
    for name, values in expected.inputs.items():
        np.testing.assert_array_equal(request.inputs[name], values)


@pytest.mark.parametrize("data", [[], {}, pd.DataFrame(), pa.table({}), iter([])])
def test_no_rows(data: Any) -> None:
    request = row_request(data, SCHEMA)
    assert {name: len(values) for name, values in request.inputs.items()} == dict.fromkeys(ROW, 0)
    assert list(request.errors) == []


def test_columns_that_the_schema_does_not_declare_are_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="^the columns 'colour', '3' are ignored: the schema does not declare them$"):
        feature_values([{**ROW, "colour": 1, "income": "x", "w": 1, 3: 4}], SCHEMA)
    feature_values([{**ROW, "income": "x", "s0": 5}], SCHEMA)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "images are a list, of one image too; found NoneType"),
        ([None], "row 0, image: found NoneType None; expected a path or a file's bytes"),
        (["a\0b"], r"row 0, image: found str 'a\\x00b'; expected a path"),
        (["\ud800"], r"row 0, image: found str '\\ud800'; expected a path, without half of a surrogate pair"),
    ],
)
def test_what_is_no_image(data: Any, message: str) -> None:
    schema = load_schema(str(SHIPPED / "shapes.yaml"))
    assert isinstance(schema, ImageSchema)
    with pytest.raises(UsageError, match=message):
        image_request(data, schema)


@pytest.mark.parametrize("pair", [None, 3, "ab", ["a"], b"ab"])
def test_what_is_no_pair(pair: Any) -> None:
    schema = load_schema(str(SHIPPED / "faces.yaml"))
    assert isinstance(schema, ImageSchema)
    with pytest.raises(UsageError, match=r"row 0, pair: found .*; expected two images, each a path or bytes"):
        image_request([pair], schema)


@pytest.mark.slow
def test_no_pairs(patterns_model: TrainedModel) -> None:  # noqa: F811
    with millrace.load_model(patterns_model.export) as model:
        predictions = model.predict([])
        assert set(map(len, predictions.values())) == {0}
        assert predictions["probabilities"].shape == (0, 2)


@pytest.mark.slow
def test_no_rows_of_a_regression_without_a_key(wages: OpenDataset, tmp_path: Path) -> None:  # noqa: F811
    options: dict[str, Any] = {"model": "linear", "max_steps": 2, "quiet": True, "no_report": True, "seed": 1}
    trained = millrace.train(data_dir=wages.path, model_dir=tmp_path / "model", **options)
    with millrace.load_model(trained.export_dir) as model:
        empty: tuple[Any, ...] = ([], pd.DataFrame({"age": [], "work": []}), {})
        for nothing in empty:
            assert {name: len(values) for name, values in model.predict(nothing).items()} == {"value": 0, "error": 0}
        with pytest.warns(UserWarning, match="^1 of 2 rows have a value of `work` that training never saw$"):
            assert len(pd.DataFrame(model.predict([{"age": 30, "work": work} for work in "az"]))) == 2
