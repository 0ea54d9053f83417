"""Schema files: read, refused however hostile they are, and those that ship."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.spec import shipped
from schemas.spec.features import Bucketize, Category, Numeric
from schemas.spec.loader import load_schema, parse_schema
from schemas.spec.shipped import main
from tests.support.csv_reading import table_schema, text


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("yes", "yes"),
        ("1", "1"),
        ("007", "007"),
        ("+5", "+5"),
        ("2026-01-31", "2026-01-31"),
        ("12345678901234567890", "12345678901234567890"),
        ('"true"', "true"),
        ("'1.50'", "1.50"),
    ],
)
def test_values_are_compared_as_they_are_written(written: str, read: str) -> None:
    schema = table_schema(text(f"- {{name: a, kind: category, values: [{written}, other]}}"))
    assert schema.features == (Category(name="a", kind="category", values=(read, "other")),)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{transform: {bucketize: 10}}", Numeric(name="a", kind="numeric", transform=Bucketize(bucketize=10))),
        (
            "{transform: {bucketize: [1, 2.5, 1e3]}}",
            Numeric(name="a", kind="numeric", transform=Bucketize(bucketize=(1.0, 2.5, 1000.0))),
        ),
        ("{clip: [0.001, 1]}", Numeric(name="a", kind="numeric", clip=(0.001, 1.0))),
        ("{missing: 0, indicator: true}", Numeric(name="a", kind="numeric", missing=0.0, indicator=True)),
        ("{column: 3}", Numeric(name="a", kind="numeric", column=3)),
        ("{column: '3'}", Numeric(name="a", kind="numeric", column="3")),
        ("{columns: [p08, p10]}", Numeric(name="a", kind="numeric", columns=("p08", "p10"))),
    ],
)
def test_the_forms_of_a_numeric_feature(written: str, read: Numeric) -> None:
    schema = table_schema(text(f"- {{name: a, kind: numeric, {written[1:]}"))
    assert schema.features == (read,)


@pytest.mark.parametrize("change", ["\ufeff", "# a comment\n", "---\n"])
def test_what_declares_the_same_has_the_same_fingerprint(change: str) -> None:
    plain = parse_schema(text().encode(), "d.yaml")
    assert parse_schema((change + text()).encode(), "d.yaml").fingerprint == plain.fingerprint
    assert parse_schema(text().replace("\n", "\r\n").encode(), "d.yaml").fingerprint == plain.fingerprint
    assert parse_schema(text(more="split: {train: 0.7, test: 0.2}").encode(), "d.yaml").fingerprint != plain.fingerprint


def test_loading_a_schema_imports_nothing_heavy() -> None:
    heavy = {"tensorflow", "apache_beam", "pyarrow", "numpy", "pandas", "google.api_core"}
    code = f"import sys, schemas.spec.loader; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


ONES = "1" * 100_000
MANY = [f"- {{name: f{i}, kind: numeric, columns: [p0, p99999]}}" for i in range(2000)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            text("- {name: a, kind: numeric, columns: [0, 999999999]}"),
            "d.yaml:4: features[0]: `columns` spans 1,000,000,000 columns; a row has 100,000 at most",
        ),
        (text(*MANY), "d.yaml:3: features: read 200,000,000 columns together; a row has 100,000 at most"),
        (
            text(f"- {{name: a, kind: numeric, columns: ['{ONES}x', '{ONES}y']}}"),
            "d.yaml:4: features[0]: columns [1111111111111111111111111111111111111111, 1",
        ),
    ],
)
def test_what_would_fill_the_memory_is_refused(content: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(content.encode(), "d.yaml")
    assert str(caught.value).startswith(line)


@pytest.mark.slow
def test_of_many_mistakes_the_first_are_reported() -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(("name: d\nformat: csv\n" + "".join(f"feat{i}: 1\n" for i in range(9000))).encode(), "d.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 201
    assert lines[-1] == "d.yaml:9002: and 8,802 more mistakes"


def mistakes(content: bytes) -> str:
    """What is wrong with a file; '' if it declares a schema. Any error but the one for a user is raised."""
    try:
        parse_schema(content, "d.yaml")
    except UsageError as error:
        return str(error)
    return ""


WORDS = ["name", "format", "csv", "features", "label", "kind", "numeric", "category", "columns", "split", "by", "file"]
SIGNS = [": ", "- ", ", ", "\n", "\n  ", "&a ", "*a ", "!!x ", "|\n", "? "]
PIECES = st.sampled_from(
    [*WORDS, *SIGNS, *"[]{}\t#'\"\x00", "0", "-1", "1e400", "true", "~", "é", "\u2028", "\ufeff", "<<", "%YAML 9\n"]
)


@pytest.mark.parametrize("form", ["{a: 1}", "7"])
def test_a_format_that_is_not_a_string_is_reported(form):
    with pytest.raises(UsageError, match=r"d\.yaml:2: format: found .*; allowed: csv, image_folder"):
        parse_schema(f"name: d\nformat: {form}\n".encode(), "d.yaml")


@pytest.mark.slow
@settings(max_examples=300, derandomize=True)
@given(start=st.sampled_from(["", text() + "\n", "name: d\nformat: csv\n"]), pieces=st.lists(PIECES, max_size=25))
def test_any_text_is_a_schema_or_a_list_of_mistakes(start: str, pieces: list[str]) -> None:
    message = mistakes((start + "".join(pieces)).encode())
    assert not message or message.startswith("d.yaml:")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("elsewhere")
def test_a_name_is_the_schema_that_ships_under_it() -> None:
    assert [load_schema(shipped.find(name)).name for name in shipped.names()] == list(shipped.names())


def test_a_file_of_that_name_comes_first_and_a_folder_does_not_count(elsewhere: Path) -> None:
    (elsewhere / "covertype").write_text("name: mine")
    assert shipped.find("covertype") == "covertype"
    assert shipped.find("./covertype") == "./covertype"
    (elsewhere / "census").mkdir()
    assert shipped.find("census") == shipped.path_of("census")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("covertype.yaml", "; did you mean covertype?"),
        ("censu", "; did you mean census?"),
        ("nowhere.yaml", ""),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_what_is_neither_is_refused_with_the_names(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        shipped.find(name)
    shipped_names = "cats_dogs, census, covertype, faces, mnist_csv, mnist_png, shapes, titanic"
    assert (
        str(refused.value)
        == f"{name}: no such schema file{hint}\nGive a file, or a schema that ships: {shipped_names}."
    )


@pytest.mark.usefixtures("elsewhere")
def test_a_printed_schema_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["titanic"]) == 0
    copied = parse_schema(capsys.readouterr().out.encode(), "my.yaml")
    assert copied.fingerprint == load_schema(shipped.path_of("titanic")).fingerprint
