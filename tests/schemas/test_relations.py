"""How columns go together in a sample: held against what the rows say by plain arithmetic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from schemas.profile.duplicates import value_hashes
from schemas.profile.label_leaks import SampledRows
from schemas.profile.relations import FEATURES, named, relations
from schemas.report.charts import Bars, Curve
from schemas.report.features import by_number, label_means

RNG = np.random.default_rng(7)


def drawn(numbers: np.ndarray, strings: list[list[str]] | None = None, labels: np.ndarray | None = None) -> SampledRows:
    """Rows of columns of numbers, and of strings, of which '' is missing."""
    rows = len(numbers)
    codes = np.zeros((rows, len(strings or ())), np.uint64)
    for place, column in enumerate(strings or ()):
        hashes = value_hashes(pa.array([text.encode() for text in column], pa.binary()))
        codes[:, place] = np.where([text != "" for text in column], hashes, 0)
    labels = np.zeros(rows) if labels is None else labels
    return SampledRows(labels, numbers.astype(np.float32), codes, np.arange(rows) % 2 == 0)


def of_classes(sample: SampledRows, numbers, strings, classes, names):
    sample = dataclasses.replace(sample, labels=np.array(classes))
    return relations(sample, numbers, strings, label="late", first=[], classes=names)


def test_the_rarer_of_two_classes_is_followed_through_the_values_of_features() -> None:
    age = RNG.integers(20, 70, 400).astype(float)
    city = RNG.choice(["Cork", "Basel", ""], 400).tolist()
    late = (RNG.random(400) < np.where(age > 50, 0.6, 0.1)).astype(int)
    findings = of_classes(drawn(age[:, None], [city]), ["age"], ["city"], late, ["no", "yes"])
    assert (findings["classes"], findings["overall"]) == (["yes"], [pytest.approx(late.mean(), rel=1e-5)])
    by_age, by_city = findings["features"]
    assert 5 < len(by_age["bins"]) <= 10
    assert sum(part["share"] for part in by_age["bins"]) == pytest.approx(1, abs=1e-4)
    for part in by_age["bins"]:
        rows = (age >= part["low"]) & (age <= part["high"])
        assert part["share"] == pytest.approx(rows.mean(), rel=1e-5)
        assert part["label"] == [pytest.approx(late[rows].mean(), rel=1e-5)]
    shown = named({"features": [by_city]}, {"city": ["Cork", "Basel", "Aarhus"]})["features"][0]["values"]
    for part in shown:
        rows = np.array(city) == (part["value"] or "")
        assert part["label"] == [pytest.approx(late[rows].mean(), rel=1e-5)]
    assert {part["value"] for part in shown} == {"Cork", "Basel", None}


def test_of_many_classes_the_most_frequent_are_followed() -> None:
    of = np.repeat(np.arange(8), np.arange(1, 9) * 10)
    findings = of_classes(drawn(np.zeros((len(of), 1))), ["x"], [], of, [f"c{i}" for i in range(8)])
    assert findings["classes"] == ["c7", "c6", "c5", "c4", "c3"]
    assert findings["features"][0]["bins"][0]["label"] == findings["overall"]


def test_of_a_label_that_is_a_number_the_mean_is_followed() -> None:
    weight = RNG.normal(size=300)
    price = 3 * weight + RNG.normal(size=300)
    findings = relations(drawn(weight[:, None], labels=price), ["weight"], [], label="price", first=[], classes=[])
    assert findings["classes"] == []
    first, last = findings["features"][0]["bins"][0], findings["features"][0]["bins"][-1]
    assert first["label"][0] < -2
    assert last["label"][0] > 2


def test_a_number_that_most_rows_have_is_a_bin_of_its_own() -> None:
    gain = np.where(np.arange(300) < 270, 0, np.arange(300)).astype(float)
    findings = of_classes(drawn(gain[:, None]), ["gain"], [], (gain > 285).astype(int), ["no", "yes"])
    bins = findings["features"][0]["bins"]
    assert [bins[0][name] for name in ("low", "high", "share")] == [0, 0, 0.9]
    assert len(bins) == 6
    assert bins[-1]["label"] == [1.0]


def test_what_is_said_of_a_thousand_columns_is_bounded() -> None:
    values = RNG.normal(size=(500, 1200))
    values[RNG.random(values.shape) < 0.01] = np.nan
    findings = of_classes(drawn(values), [f"f{i}" for i in range(1200)], [], [0, 1] * 250, "xy")
    assert len(findings["features"]) == FEATURES


@pytest.mark.parametrize(
    "column",
    [np.full(60, 3.0), np.full(60, np.nan), np.tile([np.inf, 1.0], 30), np.tile([3e38, -3e38], 30)],
    ids=["constant", "missing", "infinite", "extreme"],
)
def test_odd_columns_break_nothing(column) -> None:
    values = np.stack([column, np.arange(60.0), np.arange(60.0) ** 2], axis=1)
    findings = of_classes(drawn(values), ["odd", "b", "c"], [], [0, 1] * 30, "xy")
    target = label_means(findings)
    for feature in findings["features"]:
        chart = by_number(target, feature["bins"])
        assert chart is None or "nan" not in chart.svg()


def test_charts_are_of_shares_stacked_shares_or_means() -> None:
    parts = [
        {"low": 0.0, "high": 1.0, "share": 0.5, "label": [0.25, 0.5]},
        {"missing": True, "share": 0.5, "label": [1, 0]},
    ]
    several = by_number(label_means({"label": "l", "classes": ["a", "b"], "overall": [0.6, 0.25]}), parts)
    assert several is not None
    stacked = [(mark.name, mark.sides[0][2:]) for mark in several.marks if isinstance(mark, Bars)]
    assert stacked == [("a", (0.0, 0.25)), ("b", (0.25, 0.75)), ("others", (0.75, 1.0))]
    assert "missing" in several.svg()
    mean = by_number(label_means({"label": "l", "classes": [], "overall": [0.6]}), parts)
    assert mean is not None
    assert [list(mark.y) for mark in mean.marks if isinstance(mark, Curve)] == [[0.25, 1]]
    assert by_number(label_means({"label": "l", "classes": [], "overall": [0.6]}), parts[:1]) is None
