"""Schemas of rows and of images: columns, kinds of features, options, thresholds of drift."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import UsageError
from schemas.spec.features import (
    Numeric,
    ReadAsNumbers,
    ReadAsStrings,
)
from schemas.spec.forms import Dense, Ids, Limits, Vocabulary
from schemas.spec.images import Exact, ImageOptions, ImageSplit, Shorter
from schemas.spec.loader import AnySchema, parse_schema
from schemas.spec.table import Schema


def feature(name: str, kind: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, **keys}


def schema(*features: dict[str, Any], **keys: Any) -> Schema:
    label = feature("y", "category")
    return Schema.model_validate({"name": "d", "format": "csv", "features": features, "label": label, **keys})


def test_ngrams_become_ids_with_weights_of_their_own_name() -> None:
    (text_feature,) = schema(feature("a", "text", characters=(3, 5))).features
    assert text_feature.inputs(7) == (Ids("a", 1 + 7, None, weights="a_tfidf"),)
    assert text_feature.vocabulary == Vocabulary("a", top_k=100_000, frequency_threshold=2, by_row=True)
    cut = feature("a", "text", ngrams=(1, 1), top_k=9, frequency_threshold=1)
    assert schema(cut).features[0].vocabulary == Vocabulary("a", top_k=9, frequency_threshold=1, by_row=True)
    with pytest.raises(ValidationError, match="the name 'a_tfidf' is used twice"):
        schema(cut, feature("a_tfidf", "numeric"))


@pytest.mark.parametrize(
    ("keys", "refs"),
    [
        ({}, ("x",)),
        ({"column": "X 1"}, ("X 1",)),
        ({"column": 3}, (3,)),
        ({"columns": (3, 5)}, (3, 4, 5)),
        ({"columns": ("p9", "p11")}, ("p9", "p10", "p11")),
        ({"columns": ("p08", "p10")}, ("p08", "p09", "p10")),
    ],
)
def test_the_columns_that_a_feature_reads(keys: dict[str, Any], refs: tuple[int | str, ...]) -> None:
    assert Numeric(name="x", kind="numeric", **keys).refs == refs


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (feature("a", "weight"), feature("b", "weight"), "a dataset has one weight at most"),
        (feature("a", "key"), feature("b", "ignore"), "a model would have no input"),
    ],
)
def test_features_that_do_not_go_together(first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schema(first, second)


def test_a_name_and_a_position_are_the_same_column_if_the_schema_names_the_columns() -> None:
    with pytest.raises(ValueError, match="'b' and 'a' both read column 0"):
        schema(feature("a", "numeric"), feature("b", "numeric", column=0), csv={"columns": ("a", "y")})


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


def test_ids_are_counted() -> None:
    counts = {entry.name: entry.count for f in CLASSES.features for entry in f.inputs(10) if isinstance(entry, Ids)}
    assert counts == {"b3": 3, "b4": 4, "c": 11, "listed": 3, "h": 9, "o": 3, "bag": 12, "t": 12, "x": 7}


TEXT = """\
name: parcels
format: csv
csv: {header: present}
features:
  - {name: id, kind: key%(id)s}
  - {name: size, kind: numeric%(size)s}
  - {name: city, kind: category%(city)s}
label: {name: late, kind: category, values: ["no", "yes"]%(late)s}
%(table)s
"""
IMAGES = "name: x\nformat: image_folder\nimages: {resize: {exact: [8, 8]}}\n%s\n"


def parcels(**drift: str) -> AnySchema:
    places = {name: f", drift: {drift[name]}" if name in drift else "" for name in ("id", "size", "city", "late")}
    table = f"drift: {drift['table']}" if "table" in drift else ""
    return parse_schema((TEXT % (places | {"table": table})).encode(), "s.yaml")


@pytest.mark.parametrize(
    ("drift", "limits"),
    [
        ({}, {"size": None, "city": None, "late": None}),
        ({"table": "0.1"}, dict.fromkeys(("size", "city", "late"), Limits(fail=0.1))),
        ({"table": "{warn: 0.1}", "size": "0.2"}, {"size": Limits(fail=0.2), "city": Limits(warn=0.1)}),
        ({"table": "0.1", "late": "none"}, {"late": None, "size": Limits(fail=0.1)}),
        ({"city": "{warn: 0.1, fail: 0.2}"}, {"city": Limits(warn=0.1, fail=0.2), "size": None}),
    ],
)
def test_a_feature_has_its_own_thresholds_or_the_tables(
    drift: dict[str, str], limits: dict[str, Limits | None]
) -> None:
    table = parcels(**drift)
    assert {name: table.drift_limits(name) for name in limits} == limits
    assert table.limits_drift == any(limits.values())


@pytest.mark.parametrize("drift", ["0", "1.5", "yes", "[0.1]", "{wran: 0.1}", "{warn: 2}"])
def test_what_is_no_threshold(drift: str) -> None:
    with pytest.raises(UsageError, match=r"s.yaml:6: features\[1\].drift: found .*; allowed: a distance above which"):
        parcels(size=drift)
    with pytest.raises(UsageError, match=r"s.yaml:9: drift: found .*; allowed: a distance above which"):
        parcels(table=drift)
    with pytest.raises(UsageError, match=r"i.yaml:4: drift: found .*; allowed: a distance above which"):
        parse_schema((IMAGES % f"drift: {drift}").encode(), "i.yaml")


@pytest.mark.parametrize(
    ("drift", "message"),
    [
        ({"table": "{}"}, "s.yaml:9: drift: give `warn`, `fail` or both"),
        ({"late": "{warn: 0.2, fail: 0.1}"}, "s.yaml:8: label.drift: warn: 0.2 must be less than fail: 0.1"),
        ({"id": "0.1"}, r"s.yaml:5: features\[0\].drift: unknown key; allowed: name, column, missing_"),
    ],
)
def test_what_makes_no_sense(drift: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parcels(**drift)


def test_thresholds_are_no_part_of_the_fingerprint() -> None:
    assert parcels(table="0.1", size="none", late="{warn: 0.1}").fingerprint == parcels().fingerprint
    plain, limited = (parse_schema((IMAGES % drift).encode(), "i.yaml") for drift in ("", "drift: 0.1"))
    assert plain.fingerprint == limited.fingerprint
    assert limited.drift_limits("image/brightness") == Limits(fail=0.1)


FOLDERS = "name: s\nformat: image_folder\nimages: {resize: {exact: [8, 8]}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FOLDERS + "label: {name: class}", "s.yaml:4: label.name: unknown key; allowed: values"),
        (FOLDERS + "split: {by: row}", "s.yaml:4: split.by: found 'row'; allowed: content, name, folder"),
        (
            FOLDERS + "split: {train: 0.8, eval: 0.2}",
            "s.yaml:4: split: train 0.8, eval 0.2 and test 0.1 sum to 1.1; the sum must be 1",
        ),
        (FOLDERS + "pairs: {}", "s.yaml:4: pairs: unknown key; allowed: name, images, format, label, split"),
        (FOLDERS.replace("images: {", "images: {max_pixels: 2684354560, "), "allowed: 268435456 or less"),
        (FOLDERS.replace("[8, 8]", "8"), "images.resize: found {exact: 8}; allowed: {shorter: N}, or {exact: ["),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(text.encode(), "s.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("resize", "before", "after"),
    [
        (Shorter(shorter=256), (375, 500), (256, 341)),
        (Shorter(shorter=256), (500, 375), (341, 256)),
        (Shorter(shorter=2), (4, 5), (2, 3)),  # 2.5 rounds up
        (Exact(exact=(28, 30)), (500, 1), (28, 30)),
    ],
)
def test_size_after_resizing(resize: Shorter | Exact, before: tuple[int, int], after: tuple[int, int]) -> None:
    assert resize.size(*before) == after


@pytest.mark.parametrize(
    ("model", "value", "message"),
    [
        (ImageOptions, {}, "resize"),
        (ImageOptions, {"resize": {"shorter": 9999}}, "less than or equal"),
        (ImageOptions, {"resize": {"shorter": 256}}, "add `crop: [height, width]`"),
        (ImageOptions, {"resize": {"shorter": 64}, "crop": (65, 64)}, "larger than the resized image"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "max_pixels": 100}, "max_pixels allows 100"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "listing": "csv"}, "`root` belongs to `listing: csv`"),
        (ImageSplit, {"train": 0.0, "eval": 0.5, "test": 0.5}, "no data for training"),
    ],
)
def test_values_that_are_refused(model: Any, value: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value)
    assert message in str(caught.value)
