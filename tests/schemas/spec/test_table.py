"""Schemas: the shipped ones, the columns that features read, and what follows from a schema alone."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

import pytest

from schemas.spec.features import Category, CategoryLabel, Cross, Key, Numeric, OneHot, Weight
from schemas.spec.loader import load_schema
from schemas.spec.table import HashSplit, Schema
from tests.support.schema_texts import csv_schema

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted(ROOT.glob("schemas/*.yaml"))


def feature(name: str, kind: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, **keys}


def schema(*features: dict[str, Any], **keys: Any) -> Schema:
    label = feature("y", "category")
    return Schema.model_validate({"name": "d", "format": "csv", "features": features, "label": label, **keys})


def test_the_schemas_that_ship() -> None:
    names = ["cats_dogs", "census", "covertype", "faces", "mnist_csv", "mnist_png", "shapes", "titanic"]
    assert [path.stem for path in SHIPPED] == names
    for path in SHIPPED:
        assert load_schema(str(path)).name == path.stem


def test_covertype_is_three_features_over_all_55_columns() -> None:
    found = csv_schema("covertype")
    items = (*found.features, found.label)
    assert [(item.name, len(item.refs)) for item in items] == [
        ("terrain", 10),
        ("wilderness_area", 4),
        ("soil_type", 40),
        ("cover_type", 1),
    ]
    assert [ref for item in items for ref in item.refs] == list(range(55))
    assert isinstance(found.label, CategoryLabel)
    assert found.label.values == ("1", "2", "3", "4", "5", "6", "7")


def test_census_takes_the_labels_of_both_files() -> None:
    found = csv_schema("census")
    assert found.csv.columns is not None
    assert {ref for item in (*found.features, found.label) for ref in item.refs} == set(found.csv.columns)
    assert isinstance(found.label, CategoryLabel)
    assert found.label.aliases == {"<=50K.": "<=50K", ">50K.": ">50K"}


def test_columns_that_leak_the_titanics_label_are_no_inputs() -> None:
    found = csv_schema("titanic")
    assert {"boat", "body", "survived"}.isdisjoint(f.name for f in found.inputs)
    assert found.key is not None
    assert found.key.name == "name"


def test_mnist_is_one_vector() -> None:
    found = csv_schema("mnist_csv")
    (pixels,) = found.features
    assert pixels.refs == tuple(f"pixel{i}" for i in range(784))


@pytest.mark.parametrize(
    ("keys", "refs"),
    [
        ({}, ("x",)),
        ({"column": "X 1"}, ("X 1",)),
        ({"column": 3}, (3,)),
        ({"columns": (3, 3)}, (3,)),
        ({"columns": (3, 5)}, (3, 4, 5)),
        ({"columns": ("p9", "p11")}, ("p9", "p10", "p11")),
        ({"columns": ("p08", "p10")}, ("p08", "p09", "p10")),
        ({"columns": ("0", "2")}, ("0", "1", "2")),
    ],
)
def test_the_columns_that_a_feature_reads(keys: dict[str, Any], refs: tuple[int | str, ...]) -> None:
    assert Numeric(name="x", kind="numeric", **keys).refs == refs


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (feature("a", "numeric"), feature("a", "category", column="b"), "the name 'a' is used twice"),
        (feature("a", "numeric"), feature("b", "category", column="a"), "'b' and 'a' both read column 'a'"),
        (feature("a", "numeric", columns=(0, 3)), feature("b", "category", column=2), "'b' and 'a' both read column 2"),
        (feature("a", "key"), feature("b", "key"), "a dataset has one key at most"),
        (feature("a", "weight"), feature("b", "weight"), "a dataset has one weight at most"),
        (feature("a", "key"), feature("b", "ignore"), "a model would have no input"),
        (feature("a", "numeric"), feature("b", "cross", of=("a", "a"), buckets=5), "'a' is no category, one_hot or"),
        (feature("a", "text"), feature("b", "cross", of=("a", "a"), buckets=5), "'a' is no category, one_hot or"),
        (
            feature("a", "numeric", missing=0.0, indicator=True),
            feature("a_missing", "numeric"),
            "the name 'a_missing' is used twice",
        ),
    ],
)
def test_features_that_do_not_go_together(first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schema(first, second)


def test_a_name_and_a_position_are_the_same_column_if_the_schema_names_the_columns() -> None:
    with pytest.raises(ValueError, match="'b' and 'a' both read column 0"):
        schema(feature("a", "numeric"), feature("b", "numeric", column=0), csv={"columns": ("a", "y")})


@pytest.mark.parametrize(
    ("crossed", "ok"),
    [
        (feature("a", "category"), True),
        (feature("a", "one_hot", columns=(3, 5)), True),
        (feature("a", "numeric", transform={"bucketize": 4}), True),
        (feature("a", "numeric", columns=(3, 5), transform={"bucketize": 4}), False),
        (feature("a", "numeric"), False),
        (feature("a", "bool"), False),
    ],
)
def test_what_can_be_crossed(crossed: dict[str, Any], ok: bool) -> None:
    others = feature("b", "category"), feature("c", "cross", of=("a", "b"), buckets=5)
    if ok:
        assert isinstance(schema(crossed, *others).features[2], Cross)
    else:
        with pytest.raises(ValueError, match="'a' is no category"):
            schema(crossed, *others)


def test_inputs_key_and_weight() -> None:
    found = schema(
        feature("k", "key"),
        feature("w", "weight"),
        feature("i", "ignore"),
        feature("n", "numeric"),
        feature("g", "one_hot", columns=(5, 6)),
    )
    assert found.inputs == (
        Numeric(name="n", kind="numeric"),
        OneHot(name="g", kind="one_hot", columns=(5, 6)),
    )
    assert found.key == Key(name="k", kind="key")
    assert found.weight == Weight(name="w", kind="weight")


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ({}, ("train", "eval", "test")),
        ({"train": 0.9, "eval": 0.1, "test": 0.0}, ("train", "eval")),
        ({"train": 1.0, "eval": 0.0, "test": 0.0}, ("train",)),
        ({"by": "file", "train": "a", "test": "b"}, ("train", "test")),
    ],
)
def test_the_splits_of_a_dataset(split: dict[str, Any], names: tuple[str, ...]) -> None:
    assert schema(feature("x", "numeric"), split=split).split.splits == names


def test_a_schema_does_not_change() -> None:
    found = schema(feature("x", "numeric"))
    with pytest.raises(ValueError, match="frozen"):
        found.name = "other"
    assert found.split == HashSplit()
    assert hash(found.features[0]) == hash(Numeric(name="x", kind="numeric"))


@pytest.mark.parametrize("infinite", [float("inf"), float("nan")])
def test_numbers_are_finite(infinite: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Numeric(name="x", kind="numeric", missing=infinite)


def test_tokens_may_be_written_as_integers() -> None:
    assert Category.model_validate(feature("x", "category", values=(1, "2"))).values == ("1", "2")


def test_the_schemas_are_the_packages_data() -> None:
    packaged = importlib.resources.files("schemas")
    assert {path.name for path in SHIPPED} <= {path.name for path in packaged.iterdir()}
