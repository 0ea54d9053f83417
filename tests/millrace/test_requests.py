"""How `Model.predict` converts rows and images to a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.columns import image_request, row_request
from schemas.errors import UsageError
from schemas.samples.images import write_shapes
from schemas.spec.loader import load_schema, parse_schema
from schemas.spec.table import Schema
from tests.support.csv_datasets import PEOPLE

SHAPES = str(Path(__file__).parents[2] / "schemas" / "shapes.yaml")


@pytest.fixture
def schema() -> Schema:
    schema = parse_schema(PEOPLE.encode(), "people.yaml")
    assert isinstance(schema, Schema)
    return schema


def test_numbers_are_read_as_from_the_file(schema):
    values = [" 4.5", 4.5, np.float32(4.5), "?", "", None, float("nan"), "1_0", "abc", "1e99", True]
    rows = len(values)
    data: dict[str, list[Any]] = {c: [""] * rows for c in ("id", "hours", "work", "city", "member", "title", "words")}
    data |= {"age": values, "scores": [[1, "2", None]] * (rows - 1) + [[1]], "pet": [[1, 0, 0]] * rows}
    request = row_request(data, schema)
    expected = [4.5, 4.5, 4.5] + [np.nan] * 6
    np.testing.assert_array_equal(request.inputs["age"][:9], np.array(expected, np.float32))
    assert request.inputs["age"].dtype == np.float32
    wrong = "scores: wrong_number_of_values (1, expected 3)"
    assert request.errors == [*[""] * 7, *["age: not_a_number"] * 2, "age: out_of_range", wrong]
    np.testing.assert_array_equal(request.inputs["scores"][0], np.array([1, 2, np.nan], np.float32))


def test_strings_are_sent_as_bytes(schema):
    rows = [{"work": "Blå", "city": b"\xff", "member": 3, "title": None}]
    given = {"id": "k", "age": 1, "scores": [1, 2, 3], "hours": 1, "pet": [1, 0, 0], "words": ""}
    request = row_request([{**given, **rows[0]}], schema)
    sent = {name: request.inputs[name][0] for name in rows[0]}
    assert sent == {"work": "Blå".encode(), "city": b"\xff", "member": b"3", "title": b""}


def test_images_are_paths_or_bytes(tmp_path):
    schema = load_schema(SHAPES)
    assert not isinstance(schema, Schema)
    write_shapes(str(tmp_path / "raw"), each=1, seed=1)
    (path,) = (tmp_path / "raw" / "disc").iterdir()
    request = image_request([path, str(path), path.read_bytes(), b"", b"text", tmp_path, "no"], schema)
    assert request.inputs["image"][:3].tolist() == [path.read_bytes()] * 3
    reasons = ["", "", "", "empty_file", "not_an_image", "not_a_file", "unreadable_file"]
    assert request.errors == [reason and f"image: {reason}" for reason in reasons]
    with pytest.raises(UsageError, match="images are a list"):
        image_request(path, schema)
    with pytest.raises(UsageError, match="found int"):
        image_request([3], schema)
