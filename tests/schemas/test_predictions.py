"""The text of predictions: what Python's own json and csv modules read back is what was given, bit for bit."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.predictions import encoding
from schemas.predictions.encoding import predictions

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(width=32)


def batch(
    texts: list[str], matrix: np.ndarray, classes: list[str], *, value: bool = False, numbered: bool = False
) -> pa.RecordBatch:
    """A row for each text, which is its key, is passed through, and is its source."""
    rows = len(texts)
    outputs = {"class_id": np.arange(rows) % max(1, len(classes)), "probabilities": matrix, "value": matrix[:, 0]}
    return predictions(
        sources=pa.array(texts, pa.string()).dictionary_encode(),
        offsets=np.arange(rows) * 10,
        keys=pa.array(texts, pa.string()),
        passed={"a": pa.array(texts, pa.string()), 'b "c"': pa.array(texts[::-1], pa.string())},
        outputs=outputs,
        classes=[] if value else classes,
        numbers=np.arange(rows) if numbered else None,
    )


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[str], np.ndarray, list[str]]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=6))
    classes = draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True))
    values = draw(st.lists(FLOATS, min_size=len(texts) * len(classes), max_size=len(texts) * len(classes)))
    return texts, np.array(values, np.float32).reshape(len(texts), len(classes)), classes


def same(decoded: float | None, original: np.float32) -> bool:
    """Whether a float came back as it was."""
    return decoded is None if not math.isfinite(original) else np.float32(decoded).tobytes() == original.tobytes()


@given(drawn(), st.booleans())
def test_json_gives_every_value_back(case, numbered):
    texts, matrix, classes = case
    given_batch = batch(texts, matrix, classes, numbered=numbered)
    text = b"".join(map(bytes, encoding.encode_json_lines(given_batch, classes))).decode()
    lines = [json.loads(line, parse_int=float) for line in text.split("\n")[:-1]]
    for row, (line, given_text) in enumerate(zip(lines, texts, strict=True)):
        assert line.pop("row", None) == (row if numbered else None)
        assert list(line) == ["source", "offset", "key", "input", "class", "probabilities"]
        assert line["source"] == line["key"] == given_text
        assert line["offset"] == 10 * row
        assert line["input"] == {"a": given_text, 'b "c"': texts[-1 - row]}
        assert line["class"] == classes[row % len(classes)]
        assert list(line["probabilities"]) == classes
        assert all(map(same, line["probabilities"].values(), matrix[row]))


@given(drawn())
def test_csv_gives_every_value_back(case):
    texts, matrix, classes = case
    given_batch = batch(texts, matrix, classes)
    data = encoding.header(given_batch.schema, classes) + bytes(encoding.encode_csv(given_batch))
    (header, *lines) = csv.reader(io.StringIO(data.decode(), newline=""))
    assert header == [
        "source",
        "offset",
        "key",
        "input.a",
        'input.b "c"',
        "class",
        *(f"probability_{c}" for c in classes),
    ]
    for row, line in enumerate(lines):
        assert line[:3] == [texts[row], str(10 * row), texts[row]]
        assert line[3:6] == [texts[row], texts[-1 - row], classes[row % len(classes)]]
        assert all(same(float(cell) if cell else None, p) for cell, p in zip(line[6:], matrix[row], strict=True))
    assert len(lines) == len(texts)


@pytest.mark.parametrize("classes", [64, 65])
def test_as_many_classes_as_there_are(classes):
    matrix = np.random.default_rng(classes).random((3, classes), np.float32)
    names = [f"c{i}" for i in range(classes)]
    text = b"".join(map(bytes, encoding.encode_json_lines(batch(["x", "y", "z"], matrix, names), names)))
    probabilities = [json.loads(line)["probabilities"] for line in text.splitlines()]
    assert np.array_equal(np.array([list(row.values()) for row in probabilities], np.float32), matrix)
    assert [list(row) for row in probabilities] == [names] * 3


def test_a_regression_has_a_value():
    matrix = np.array([[1.5], [np.nan]], np.float32)
    given_batch = batch(["x", "y"], matrix, [], value=True)
    (data,) = encoding.encode_json_lines(given_batch, [])
    assert [json.loads(line)["value"] for line in bytes(data).splitlines()] == [1.5, None]
    assert bytes(encoding.encode_csv(given_batch)).splitlines()[1].endswith(b",")
