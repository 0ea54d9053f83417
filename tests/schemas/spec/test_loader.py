"""What a schema file declares: values and forms as they are written, and the fingerprint of it all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.spec.features import Bucketize, Category, Numeric, Scale
from schemas.spec.loader import load_schema, parse_schema
from schemas.spec.table import FileSplit, HashSplit, Schema
from tests.support.schema_texts import text


def csv_schema(content: str) -> Schema:
    """The CSV schema that a text declares."""
    found = parse_schema(content.encode(), "d.yaml")
    assert isinstance(found, Schema)
    return found


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("1", "1"),
        ("-1", "-1"),
        ("0", "0"),
        ("007", "007"),
        ("+5", "+5"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("2026-01-31", "2026-01-31"),
        ("12345678901234567890", "12345678901234567890"),
        ('"true"', "true"),
        ("'1.50'", "1.50"),
        ('"<=50K"', "<=50K"),
        ('" a "', " a "),
        ("'~'", "~"),
        ('"?"', "?"),
        ("é", "é"),
    ],
)
def test_values_are_compared_as_they_are_written(written: str, read: str) -> None:
    schema = csv_schema(text(f"- {{name: a, kind: category, values: [{written}, other]}}"))
    assert schema.features == (Category(name="a", kind="category", values=(read, "other")),)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{transform: log}", Numeric(name="a", kind="numeric", transform="log")),
        ("{transform: {scale: [0, 255]}}", Numeric(name="a", kind="numeric", transform=Scale(scale=(0, 255)))),
        ("{transform: {bucketize: 10}}", Numeric(name="a", kind="numeric", transform=Bucketize(bucketize=10))),
        (
            "{transform: {bucketize: [1, 2.5, 1e3]}}",
            Numeric(name="a", kind="numeric", transform=Bucketize(bucketize=(1.0, 2.5, 1000.0))),
        ),
        ("{missing: -1.5}", Numeric(name="a", kind="numeric", missing=-1.5)),
        ("{missing: 0, indicator: true}", Numeric(name="a", kind="numeric", missing=0.0, indicator=True)),
        ("{column: 3}", Numeric(name="a", kind="numeric", column=3)),
        ("{column: '3'}", Numeric(name="a", kind="numeric", column="3")),
        ("{columns: [p08, p10]}", Numeric(name="a", kind="numeric", columns=("p08", "p10"))),
    ],
)
def test_the_forms_of_a_numeric_feature(written: str, read: Numeric) -> None:
    schema = csv_schema(text(f"- {{name: a, kind: numeric, {written[1:]}"))
    assert schema.features == (read,)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{}", HashSplit()),
        ("{by: row, train: 0.9, eval: 0.1, test: 0}", HashSplit(train=0.9, eval=0.1, test=0)),
        ("{by: [x, y]}", HashSplit(by=("x", "y"))),
        ("{by: file, train: a, test: b}", FileSplit(by="file", train="a", test="b")),
    ],
)
def test_the_forms_of_a_split(written: str, read: HashSplit | FileSplit) -> None:
    assert csv_schema(text(more=f"split: {written}")).split == read


@pytest.mark.parametrize("change", ["\ufeff", "# a comment\n", "---\n"])
def test_what_declares_the_same_has_the_same_fingerprint(change: str) -> None:
    plain = parse_schema(text().encode(), "d.yaml")
    assert parse_schema((change + text()).encode(), "d.yaml").fingerprint == plain.fingerprint
    assert parse_schema(text().replace("\n", "\r\n").encode(), "d.yaml").fingerprint == plain.fingerprint
    assert parse_schema(text(more="split: {train: 0.7, test: 0.2}").encode(), "d.yaml").fingerprint != plain.fingerprint


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.yaml", "no such schema file"), (tmp_path, "cannot be read")):
        with pytest.raises(UsageError, match=message) as caught:
            load_schema(str(path))
        assert str(caught.value).startswith(f"{path}: ")


def test_loading_a_schema_imports_nothing_heavy() -> None:
    heavy = {"tensorflow", "apache_beam", "pyarrow", "numpy", "pandas", "google.api_core"}
    code = f"import sys, schemas.spec.loader; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
