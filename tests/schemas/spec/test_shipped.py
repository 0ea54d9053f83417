"""Shipped schemas by name: where there is no file of that name, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.spec import shipped
from schemas.spec.loader import load_schema, parse_schema
from schemas.spec.shipped import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", shipped.names())
def test_a_name_is_the_schema_that_ships_under_it(name: str) -> None:
    assert load_schema(shipped.find(name)).name == name


def test_a_file_of_that_name_comes_first(elsewhere: Path) -> None:
    (elsewhere / "covertype").write_text("name: mine")
    assert shipped.find("covertype") == "covertype"
    assert shipped.find("./covertype") == "./covertype"


def test_a_folder_of_the_same_name_is_ignored(elsewhere: Path) -> None:
    (elsewhere / "covertype").mkdir()
    assert shipped.find("covertype") == shipped.path_of("covertype")


def test_a_path_is_unchanged(elsewhere: Path) -> None:
    (elsewhere / "schemas").mkdir()
    (elsewhere / "schemas" / "covertype.yaml").write_text("name: mine")
    assert shipped.find("schemas/covertype.yaml") == "schemas/covertype.yaml"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("schemas/covertype.yaml", "; did you mean covertype?"),
        ("covertype.yaml", "; did you mean covertype?"),
        ("censu", "; did you mean census?"),
        ("./census", "; did you mean census?"),
        ("nowhere.yaml", ""),
    ],
)
def test_what_is_neither_is_refused_with_the_names(given: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        shipped.find(given)
    known = "cats_dogs, census, covertype, faces, mnist_csv, mnist_png, shapes, titanic"
    assert str(refused.value) == f"{given}: no such schema file{hint}\nGive a file, or a schema that ships: {known}."


def test_a_printed_schema_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["titanic"]) == 0
    copied = parse_schema(capsys.readouterr().out.encode(), "my.yaml")
    assert copied.fingerprint == load_schema(shipped.path_of("titanic")).fingerprint


def test_every_schema_is_listed_with_a_complete_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped.names())
    assert [line for line in lines if not line.endswith((".", ":"))] == []


def test_a_name_that_does_not_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["iris"]) == 2
    assert "invalid choice: 'iris'" in capsys.readouterr().err
