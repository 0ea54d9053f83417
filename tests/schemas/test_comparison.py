"""Distances against SciPy on raw columns; what is drift, and what is chance."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from schemas.comparison import compare
from schemas.comparison.distances import edges
from schemas.profile.columns import Role
from schemas.profile.summary import Distribution
from schemas.spec.forms import Limits
from tests.support.samples import sample_of

WORDS = [b"Private", b"Self-emp", b"Local-gov", b"State-gov", b"Never-worked"]


def words(rng: np.random.Generator, n: int, p=(0.6, 0.2, 0.1, 0.09, 0.01)) -> np.ndarray:
    return np.array(WORDS, object)[rng.choice(len(WORDS), n, p=p)]


def only(a: np.ndarray, b: np.ndarray, limits: Limits | None = None):
    """The comparison of one column."""
    return compare(sample_of({"x": a}), sample_of({"x": b}), lambda _: limits).features[0]


def binned(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The shares of raw values between (bound, next bound], counted one range at a time."""
    ends = [-np.inf, *bounds.astype(np.float64), np.inf]
    wide = values.astype(np.float64)
    return np.array([np.mean((wide > low) & (wide <= high)) for low, high in itertools.pairwise(ends)])


NUMBERS = {
    "shifted": lambda r: (r.normal(size=5000), r.normal(0.7, 1, size=3000)),
    "scaled": lambda r: (r.normal(size=5000), 3 * r.normal(size=5000)),
    "few values": lambda r: (r.integers(0, 5, 900), r.integers(1, 6, 700)),
    "mostly zero": lambda r: (np.where(r.random(4000) < 0.9, 0, 1), np.where(r.random(4000) < 0.7, 0, 7)),
    "nothing in common": lambda r: (r.random(800), 10 + r.random(800)),
    "one value each": lambda r: (np.full(50, 3.0), np.full(70, 4.0)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_as_scipy_has_them_on_raw_columns(name):
    a, b = (np.asarray(side, np.float32) for side in NUMBERS[name](np.random.default_rng(1)))
    first, second = sample_of({"x": a}), sample_of({"x": b})
    bounds = edges(*(Distribution(side.columns["x"].values) for side in (first, second)))
    p, q = binned(a, bounds), binned(b, bounds)
    feature = compare(first, second).features[0]
    exact = max(len(np.unique(a)), len(np.unique(b))) <= 1024
    error = 1e-9 if exact else 0.02  # a share is off by twice the rank error
    assert feature.measure == "jensen_shannon"
    assert feature.distance == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=error)
    assert feature.distance is not None
    assert feature.distance > feature.noise, "these are far apart"
    assert feature.range is not None
    assert feature.range.first == (a.min(), a.max())
    outside = int(((b < a.min()) | (b > a.max())).sum())
    assert feature.range.outside == pytest.approx(outside, abs=1e-9 if exact else 0.01 * len(b) + 1)


def test_strings_as_scipy_has_them_on_raw_columns():
    rng = np.random.default_rng(2)
    a, b = words(rng, 5000), words(rng, 3000, p=(0.3, 0.4, 0.1, 0.1, 0.1))
    b[:60] = b"New"
    b[60:63] = b"Newer"
    values = sorted({*a, *b})
    p, q = (np.array([np.mean(side == value) for value in values]) for side in (a, b))
    feature = only(a, b)
    assert feature.measure == "l_infinity"
    assert feature.distance == pytest.approx(np.abs(p - q).max(), abs=1e-12)
    assert feature.cell == ("Private", pytest.approx(np.mean(a == b"Private")), pytest.approx(np.mean(b == b"Private")))
    assert feature.unseen.examples == (("New", 60), ("Newer", 3))
    assert (feature.unseen.distinct, feature.unseen.rows, feature.unseen.at_most) == (2, 63, 0)


def table(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    gap = rng.random(n) < 0.03
    return {
        "normal": np.where(gap, np.nan, rng.normal(size=n)),
        "zeros": np.where(rng.random(n) < 0.9, 0, rng.exponential(size=n)),
        "few": rng.integers(0, 5, n).astype(float),
        "word": words(rng, n),
        "rare": np.array([b"%d" % i for i in rng.zipf(1.6, n).clip(max=3000)], object),
        "flat": np.array([b"%d" % i for i in rng.integers(0, 800, n)], object),
        "unique": np.array([b"%d" % i for i in rng.integers(0, 10**9, n)], object),
    }


@pytest.mark.parametrize(("first", "second"), [(20, 20), (20_000, 20), (20_000, 100), (2_000, 1_000), (8_000, 8_000)])
def test_samples_of_the_same_data_stay_within_the_noise(first, second):
    rng, exceeded = np.random.default_rng(3), []
    for _ in range(6):
        comparison = compare(sample_of(table(rng, first)), sample_of(table(rng, second)), lambda _: Limits(fail=1e-6))
        exceeded += [feature.name for feature in comparison.features if feature.verdict not in ("ok", "not_judged")]
    assert len(exceeded) <= 1  # of 42, where 1 comparison in 100 may exceed it


def test_twenty_rows_do_not_trip_a_threshold_that_a_shift_of_all_of_them_does():
    rng = np.random.default_rng(5)
    a = words(rng, 10_000)
    assert only(a, words(rng, 20), Limits(fail=0.05)).verdict == "ok"
    assert only(a, np.full(20, b"Other", object), Limits(fail=0.05)).verdict == "fail"


def test_the_change_of_the_missing_share_is_drift_too():
    rng = np.random.default_rng(6)
    a = np.where(rng.random(5000) < 0.01, np.nan, rng.normal(size=5000))
    b = np.where(rng.random(5000) < 0.1, np.nan, rng.normal(size=5000))
    feature = only(a, b, Limits(warn=0.05, fail=0.5))
    assert feature.distance <= feature.noise
    assert feature.missing == (pytest.approx(np.isnan(a).mean()), pytest.approx(np.isnan(b).mean()))
    assert feature.verdict == "warn"
    assert feature.drift == pytest.approx(np.isnan(b).mean() - np.isnan(a).mean())


def test_a_column_that_is_missing_as_a_whole_drifts_by_all_that_it_had():
    values, none = np.arange(500.0), np.full(500, np.nan)
    feature = only(values, none, Limits(fail=0.9))
    assert (feature.distance, feature.missing, feature.verdict) == (None, (0.0, 1.0), "fail")
    assert only(none, none, Limits(fail=0.9)).verdict == "ok"


YES, HALF = np.full(900, b"yes", object), np.array([b"yes", b"no"] * 450, object)
JUDGED: dict[str, tuple[dict[str, tuple[np.ndarray, np.ndarray | None]], dict[str, Limits], str]] = {
    "no threshold": (
        {"y": (HALF, YES), "x": (YES, YES)},
        {},
        "1 feature differs by more than chance explains: y drifted by 0.5000 (yes: 50.0% -> 100.0%). Not judged: no "
        "`drift:` threshold is set",
    ),
    "no threshold, no drift": (
        {"y": (HALF, HALF)},
        {},
        "no feature differs by more than chance explains. Not judged: no `drift:` threshold is set",
    ),
    "a threshold, no drift": (
        {"y": (HALF, HALF)},
        {"y": Limits(fail=0.9)},
        "ok: no feature differs by more than chance explains",
    ),
    "a threshold of another feature": (
        {"y": (HALF, YES), "x": (YES, YES)},
        {"x": Limits(fail=0.1)},
        "ok: no feature differs by more than chance explains. Not judged: 1 feature (no `drift:` threshold is set), "
        "of which 1 feature differs by more than chance explains: y by 0.5000",
    ),
    "a threshold of what only one side has": (
        {"y": (HALF, None), "x": (YES, YES)},
        {"y": Limits(fail=0.1)},
        "no feature differs by more than chance explains. Not judged: only in first; no `drift:` threshold is set",
    ),
    "too few records": (
        {"y": (HALF[:2], YES[:2])},
        {"y": Limits(fail=0.1)},
        "no feature differs by more than chance explains. Not judged: too few records",
    ),
    "a threshold that is exceeded": (
        {"y": (HALF, YES), "x": (HALF, YES)},
        {"x": Limits(fail=0.1)},
        "FAIL: x drifted by 0.5000, above its threshold of 0.1 (yes: 50.0% -> 100.0%)",
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_only_what_a_threshold_is_set_for_is_called_ok(name):
    columns, limits, text = JUDGED[name]
    first = {name: values for name, (values, _) in columns.items()}
    second = {name: values for name, (_, values) in columns.items() if values is not None}
    comparison = compare(sample_of(first), sample_of(second), limits.get)
    assert comparison.summary == text
    assert (comparison.verdict == "not_judged") == ("Not judged: " in text and not text.startswith("ok: "))
    assert comparison.as_json()["verdict"] == comparison.verdict


def tails(rng: np.random.Generator, n: int, numbers: dict[float, float], *, round_to: float) -> np.ndarray:
    """Numbers that have these shares, and others above 0, rounded."""
    positives = np.maximum(round_to, rng.lognormal(8, 1, n) // round_to * round_to)
    drawn = rng.choice(len(numbers) + 1, n, p=[*numbers.values(), 1 - sum(numbers.values())])
    return np.concatenate([list(numbers), [0.0]])[drawn] + np.where(drawn == len(numbers), positives, 0)


@pytest.mark.parametrize("round_to", [100.0, 0.01])  # so few values that all are counted, and many
@pytest.mark.parametrize("numbers", [{0.0: 0.92}, {0.0: 0.4, -9.0: 0.3}, {1e9: 0.6}, {-1.0: 0.15}])
def test_numbers_beside_one_that_most_rows_have(numbers, round_to):
    """Those that double are seen, as far as their deciles tell; those that stay as they were are within the noise."""
    rng = np.random.default_rng(11)
    a, b, again = (tails(rng, 30_000, numbers, round_to=round_to) for _ in range(3))
    b = np.where(np.isin(b, list(numbers)), b, 2 * b)
    feature = only(a, b)
    assert feature.distance > 2 * feature.noise
    rest = [side[~np.isin(side, list(numbers))] for side in (a, b)]
    bounds = [-np.inf, *np.quantile(np.concatenate(rest), np.arange(1, 10) / 10), np.inf]
    p, q = (
        np.array([*(np.mean(side == x) for x in numbers), *(np.histogram(other, bounds)[0] / len(side))])
        for side, other in zip((a, b), rest, strict=True)
    )
    expected = jensenshannon(p, q, base=2) ** 2
    assert feature.distance == pytest.approx(expected, rel=0.1 if round_to == 100 else 0.35)
    same = only(a, again)
    assert same.distance <= same.noise


def test_what_only_one_side_has_and_other_types_are_said():
    a = sample_of({"both": np.arange(9.0), "left": np.arange(9.0), "other": np.arange(9.0)})
    b = sample_of({"both": np.arange(9.0), "right": np.arange(9.0), "other": words(np.random.default_rng(0), 9)})
    comparison = compare(a, b, names=("out/", "new.csv"))
    assert {f.name: f.note for f in comparison.features} == {
        "both": "",
        "left": "only in out/",
        "right": "only in new.csv",
        "other": "a number in out/, a string in new.csv",
    }


def test_keys_are_no_drift():
    a, b = (np.array([b"%d" % i for i in range(start, start + 50)], object) for start in (0, 100))
    roles: dict[str, Role] = {"id": "key"}
    comparison = compare(sample_of({"id": a}, roles=roles), sample_of({"id": b}, roles=roles))
    assert (comparison.features, comparison.verdict) == ((), "not_judged")


def test_the_most_drifted_comes_first_and_what_fails_before_all():
    rng = np.random.default_rng(7)
    a = sample_of({"x": rng.normal(size=2000), "y": rng.normal(size=2000), "z": rng.normal(size=2000)})
    b = sample_of({"x": rng.normal(size=2000), "y": rng.normal(2, 1, 2000), "z": rng.normal(0.5, 1, 2000)})
    assert [f.name for f in compare(a, b).features] == ["y", "z", "x"]
    limits = {"z": Limits(fail=0.01)}
    assert [f.name for f in compare(a, b, limits.get).features] == ["z", "y", "x"]


def test_values_beyond_those_that_are_held():
    """More than 1,024 distinct strings: a value that one side does not hold may be rare in it, and is said so."""
    rng = np.random.default_rng(8)
    a = np.array([b"%d" % i for i in rng.integers(0, 5000, 40_000)], object)
    b = a.copy()
    b[:4000] = b"new"
    feature = only(a, b)
    assert feature.distance == pytest.approx(0.1, abs=0.002)
    assert feature.cell[0] == "new"
    assert feature.unseen.examples[0][0] == "new"
    assert 0 < feature.unseen.at_most <= 40_000 / 1025
    assert feature.unseen.at_least


def test_a_note_stands_beside_what_differs() -> None:
    rng = np.random.default_rng(1)
    first, second = words(rng, 500), words(rng, 500, (0.1, 0.2, 0.1, 0.09, 0.51))
    note = "the splits hold whole groups"
    for other, expected in ((second, True), (first, False)):
        samples = (sample_of({"a": first}), sample_of({"a": other}))
        compared = compare(*samples, lambda name: None, names=("train", "eval"))
        assert dataclasses.replace(compared, note=note).summary.endswith(note) == expected
