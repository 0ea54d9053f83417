"""Schemas of real files, compared with what a person would declare: `tests/support/declared_by_hand.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from schemas.init.check import try_out
from schemas.init.tables import infer_table
from schemas.spec.features import CategoryLabel, Numeric, OneHot, Scale
from schemas.spec.kinds.base import Item
from schemas.spec.table import Schema
from tests.support.csv_reading import table_schema
from tests.support.declared_by_hand import FIXTURES, SPECTRUM, TABLES, ByHand, Column

ENOUGH = 0.95  # of the columns of each file


def by_column(columns: Mapping[Column, str]) -> dict[str | int, str]:
    """The person's declarations, column by column."""
    return {
        column: declared
        for several, declared in columns.items()
        for column in (several if isinstance(several, range | tuple) else (several,))
    }


def written(item: Item) -> str:
    """A declaration as the person's table has it."""
    match item:
        case Numeric(transform=Scale()):
            return "numeric scale"
        case Numeric(transform="log"):
            return "numeric log"
        case Numeric() | OneHot():
            return item.kind
        case _:
            return item.kind  # type: ignore[attr-defined]


def guessed(schema: Schema, names: tuple[str, ...] | None) -> dict[str | int, str]:
    """What the schema declares, column by column, as the header calls them."""
    found: dict[str | int, str] = {}
    for item in schema.items:
        is_label = item is schema.label
        for ref in item.refs:
            column = names[ref] if isinstance(ref, int) and names is not None else ref
            found[column] = f"label {item.kind}" if is_label else written(item)
    return found


def schema_of(table: ByHand, folder: Path) -> tuple[Schema, tuple[str, ...] | None]:
    path = str(folder / table.file)
    inferred = infer_table([path], label=table.label)
    schema = table_schema(try_out(inferred, [path]).text, for_job=True)
    first = None
    if schema.csv.header == "present" and not path.endswith(".gz"):
        line = Path(path).read_bytes().splitlines()[0].decode("utf-8", "replace")
        quote, delimiter = schema.csv.quote, schema.csv.delimiter
        first = tuple(name.strip().strip(quote) for name in line.split(delimiter))
    return schema, first


def name_of(table: ByHand) -> str:
    return table.file.rpartition("/")[2]


@pytest.mark.parametrize("table", [table for table in TABLES if table.in_fixtures], ids=name_of)
def test_a_table_is_declared_as_by_hand(table):
    assert_declared_as_by_hand(table, FIXTURES)


@pytest.mark.parametrize("table", [table for table in TABLES if not table.in_fixtures], ids=name_of)
def test_a_large_table_is_declared_as_by_hand(real_data, table):
    assert_declared_as_by_hand(table, real_data)


def assert_declared_as_by_hand(table: ByHand, folder: Path) -> None:
    schema, names = schema_of(table, folder)
    found, wanted = guessed(schema, names), by_column(table.columns)
    assert found.keys() == wanted.keys()
    wrong = {column: (found[column], wanted[column]) for column in wanted if found[column] != wanted[column]}
    assert len(wrong) <= (1 - ENOUGH) * len(wanted), wrong
    groups = [item.refs for item in schema.items if isinstance(item, OneHot)]
    by_hand = [several for several, kind in table.columns.items() if kind == "one_hot"]
    assert groups == [tuple(several) for several in by_hand if isinstance(several, range | tuple)]


def test_the_files_of_csv_spectrum_are_declared_as_by_hand(real_data):
    right = total = 0
    for table in SPECTRUM:
        schema, names = schema_of(table, real_data)
        found, wanted = guessed(schema, names), by_column(table.columns)
        assert found.keys() == wanted.keys(), table.file
        total += len(wanted)
        right += sum(found[column] == declared for column, declared in wanted.items())
    assert right >= ENOUGH * total


def test_what_the_table_of_passengers_shows(real_data):
    """The parts of a declaration that the person's table leaves out."""
    table = next(table for table in TABLES if table.file.endswith("titanic.csv"))
    schema, _ = schema_of(table, real_data)
    items = {item.name: item for item in schema.items}
    assert schema.csv.missing == ("?", "")
    assert items["age"].model_dump(include={"missing", "indicator"}) == {"missing": "mean", "indicator": True}
    assert items["fare"].model_dump(include={"missing", "indicator"}) == {"missing": "median", "indicator": False}
    assert items["sex"].model_dump(include={"values"}) == {"values": ("female", "male")}
    assert items["embarked"].model_dump(include={"missing"}) == {"missing": "<unknown>"}
    assert isinstance(schema.label, CategoryLabel)
    assert schema.label.values == ("0", "1")


def test_those_who_answered_several_times_stay_together():
    for table, by in (("modechoice.csv", "individual"), ("penguins-raw.csv", "individual_id")):
        schema, _ = schema_of(next(t for t in TABLES if t.file == table), FIXTURES)
        assert schema.split.model_dump()["by"] == (by,)
