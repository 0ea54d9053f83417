"""When a job says that splits do not have the shares that a schema gives them, and what to do about it."""

from __future__ import annotations

import pytest

from schemas.spec.split_shares import uneven_splits
from tests.support.csv_reading import table_schema

SCHEMA = "name: t\nformat: csv\nfeatures: [{name: town, kind: category}]\nlabel: {name: y, kind: category}\nsplit: "
TWO = "{by: row, train: 0.8, eval: 0.2, test: 0}"


@pytest.mark.parametrize(
    ("split", "rows", "uneven"),
    [
        (TWO, {"train": 140, "eval": 160}, True),
        (TWO, {"train": 300}, True),
        (TWO, {"train": 260, "eval": 40}, False),
        (TWO, {"train": 12}, False),
        (TWO, {"train": 79_000, "eval": 21_000}, False),  # more than chance, and little
        (TWO, {}, False),
        ("{by: row}", {"train": 240, "test": 60}, True),
        ('{by: file, train: "a*", eval: "b*"}', {"train": 10, "eval": 990}, False),
    ],
)
def test_sizes_are_uneven_that_chance_does_not_explain(split: str, rows: dict[str, int], uneven: bool) -> None:
    assert (uneven_splits(table_schema(SCHEMA + split), rows) is not None) == uneven


def test_the_cause_is_named() -> None:
    assert uneven_splits(table_schema(SCHEMA + TWO), {"train": 140, "eval": 160}) == (
        "the splits are uneven (rows, and what the schema's shares would give: train 140 for 240, eval 160 for 60), "
        "since rows of equal values are in one split, and few rows are distinct. To divide equal rows, number the rows "
        "in a column of the file, and divide by it: split: {by: [number]}"
    )
    by_town = uneven_splits(table_schema(SCHEMA + "{by: [town]}"), {"train": 300})
    assert "since rows that have the same town are in one split" in str(by_town)
