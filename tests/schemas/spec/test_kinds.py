"""The properties of every feature kind are consistent."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import pytest

from schemas.spec.features import Feature, Label, ReadAsNumbers, ReadAsStrings
from schemas.spec.forms import Dense, Ids
from schemas.spec.table import Schema, raw_columns

KINDS = (*get_args(get_args(Feature)[0]), *get_args(get_args(Label)[0]))

FEATURES: tuple[dict[str, Any], ...] = (
    {"name": "n", "kind": "numeric"},
    {"name": "v", "kind": "numeric", "columns": ("v0", "v2"), "missing": 0.0, "indicator": True},
    {"name": "b3", "kind": "numeric", "transform": {"bucketize": (1.0, 2.0)}},
    {"name": "b4", "kind": "numeric", "transform": {"bucketize": 4}, "columns": ("w0", "w1")},
    {"name": "c", "kind": "category"},
    {"name": "listed", "kind": "category", "values": ("a", "b")},
    {"name": "h", "kind": "category", "hash_buckets": 9},
    {"name": "o", "kind": "one_hot", "columns": ("o0", "o2")},
    {"name": "flag", "kind": "bool"},
    {"name": "bag", "kind": "text"},
    {"name": "t", "kind": "text", "length": 5},
    {"name": "x", "kind": "cross", "of": ("c", "b3"), "buckets": 7},
    {"name": "weight", "kind": "weight"},
    {"name": "key", "kind": "key"},
    {"name": "skip", "kind": "ignore"},
)


def schema_of(label: dict[str, Any]) -> Schema:
    return Schema.model_validate({"name": "d", "format": "csv", "features": FEATURES, "label": label})


CLASSES = schema_of({"name": "y", "kind": "category"})
NUMBER = schema_of({"name": "y", "kind": "numeric"})
ITEMS = [*CLASSES.items, NUMBER.label]


def test_each_kind_is_tried_here() -> None:
    assert {type(item) for item in ITEMS} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_leaves_no_fact_open(kind: type) -> None:
    assert not inspect.isabstract(kind)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{type(item).__name__}-{item.name}")
def test_the_facts_of_an_item_agree(item: Any) -> None:
    assert item.width == len(item.refs)
    assert (item.raw is None) == (not isinstance(item, ReadAsNumbers | ReadAsStrings))
    if item.raw is not None:
        assert item.raw.name == item.name
        assert item.raw.dtype == ("float32" if isinstance(item, ReadAsNumbers) else "string")
        assert item.width == (item.raw.width or 1)
    if item.vocabulary is not None:
        assert item.measures
        assert item.vocabulary.name == item.name
    assert item.made[0] == item.name


@pytest.mark.parametrize("feature", CLASSES.features, ids=lambda feature: feature.name)
def test_what_a_model_reads_is_what_is_stored(feature: Any) -> None:
    inputs = feature.inputs(10)
    assert tuple(entry.name for entry in inputs) == (feature.made if feature.is_input else ())
    for entry in inputs[:1]:
        assert (entry.width if isinstance(entry, Dense) else entry.length or 1) == feature.stored_length
    if feature.crossable:
        assert isinstance(inputs[0], Ids)
        assert inputs[0].length == 1


def test_what_is_measured_and_what_is_read() -> None:
    assert [item.name for item in CLASSES.items if item.measures] == ["n", "v", "b4", "c", "bag", "t", "y"]
    assert [f.name for f in CLASSES.features if f.crossable] == ["b3", "c", "listed", "h", "o"]
    assert [c.name for c in raw_columns(NUMBER)] == [
        *("n", "v", "b3", "b4", "c", "listed", "h", "o", "flag", "bag", "t", "weight", "key", "y")
    ]
    assert [f.name for f in CLASSES.inputs] == [f["name"] for f in FEATURES[:-3]]


def test_ids_are_counted() -> None:
    counts = {entry.name: entry.count for f in CLASSES.features for entry in f.inputs(10) if isinstance(entry, Ids)}
    assert counts == {"b3": 3, "b4": 4, "c": 11, "listed": 3, "h": 9, "o": 3, "bag": 12, "t": 12, "x": 7}
