"""What columns alone tell about the label, against scikit-learn and pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from schemas.profile.label_leaks import LEAST, LabelSignal, SampledRows, label_signals

DRAWN = 3000


def sampled(labels: np.ndarray, numbers: list[np.ndarray], codes: list[np.ndarray]) -> SampledRows:
    rows = len(labels)
    fitting = np.random.default_rng(9).integers(0, 2, rows).astype(bool)
    matrix = np.stack(numbers, axis=1).astype(np.float32) if numbers else np.empty((rows, 0), np.float32)
    strings = np.stack(codes, axis=1).astype(np.uint64) if codes else np.empty((rows, 0), np.uint64)
    return SampledRows(labels, matrix, strings, fitting)


def told(rows: SampledRows) -> dict[str, LabelSignal]:
    numbers = [f"n{i}" for i in range(rows.numbers.shape[1])]
    strings = [f"s{i}" for i in range(rows.codes.shape[1])]
    return {signal.name: signal for signal in label_signals(rows, numbers, strings)}


@pytest.mark.parametrize("separation", [0.0, 0.5, 2.0, 6.0])
def test_the_auc_of_numbers_is_scikit_learns(separation: float) -> None:
    """Of a feature that rises with the label, of one that falls, of one with many ties."""
    drawn = np.random.default_rng(1)
    y = drawn.integers(0, 2, DRAWN)
    x = drawn.normal(size=DRAWN) + separation * y
    signals = told(sampled(y, [x, -x, np.round(x)], []))
    expected = [max(a, 1 - a) for a in (roc_auc_score(y, v.astype(np.float32)) for v in (x, -x, np.round(x)))]
    # A score of bins, which is judged on half of the rows, may be larger by chance.
    assert [signals[f"n{i}"].value for i in range(3)] == pytest.approx(expected, abs=0.02)
    assert all(signals[f"n{i}"].value >= expected[i] - 1e-12 for i in range(3))


@pytest.mark.parametrize(
    ("shares", "means", "scale"), [([0.5, 0.3, 0.15, 0.05], [0, 1, 2, 3], 0.3), ([0.9, 0.08, 0.02], [0, 1, 3], 1.0)]
)
def test_the_auc_of_classes_is_that_of_one_against_the_rest(shares, means, scale) -> None:
    drawn = np.random.default_rng(2)
    y = drawn.choice(len(shares), DRAWN, p=shares)
    x = np.array(means)[y] + drawn.normal(scale=scale, size=DRAWN)
    signal = told(sampled(y, [x], []))["n0"]
    of_class = np.array([roc_auc_score(y == c, x.astype(np.float32)) for c in range(len(shares))])
    best = np.maximum(of_class, 1 - of_class)
    assert signal.value == pytest.approx(best.max(), abs=0.01)
    assert signal.of in np.flatnonzero(best > best.max() - 0.01)


def test_strings_are_judged_on_rows_that_they_were_not_fitted_to() -> None:
    drawn = np.random.default_rng(4)
    y = drawn.integers(0, 2, DRAWN)
    copy, noise, unique = 7 + 3 * y, drawn.integers(1, 30, DRAWN), np.arange(1, DRAWN + 1)
    signals = told(sampled(y, [], [copy, noise, unique]))
    assert signals["s0"].value == 1
    assert signals["s1"].value == pytest.approx(0.5, abs=0.05)
    assert signals["s2"].value == pytest.approx(0.5, abs=0.01)  # a name for each row tells nothing


def test_numbers_that_tell_in_another_way_than_by_their_order() -> None:
    drawn = np.random.default_rng(5)
    y = drawn.integers(0, 2, DRAWN)
    beyond = np.where(y == 1, drawn.choice([-1, 1], DRAWN) * drawn.uniform(2, 3, DRAWN), drawn.uniform(-1, 1, DRAWN))
    missing = np.where(y == 1, np.nan, drawn.normal(size=DRAWN))  # written for one class only
    sparse_noise = np.where(drawn.random(DRAWN) < 0.5, np.nan, drawn.normal(size=DRAWN))
    signals = told(sampled(y, [beyond, missing, sparse_noise], []))
    assert signals["n0"].value > 0.99
    assert (signals["n1"].value, signals["n1"].rows) == (1, DRAWN)
    assert signals["n2"].value < 0.56


@pytest.mark.parametrize(("rows", "expected"), [(LEAST - 1, []), (LEAST, [1])])
def test_too_few_rows_are_not_judged(rows: int, expected: list[float]) -> None:
    y = np.repeat([0, 1], [1000, rows])
    assert [signal.value for signal in told(sampled(y, [y.astype(float)], [])).values()] == expected


def test_correlations_are_those_of_pandas() -> None:
    drawn = np.random.default_rng(6)
    label = drawn.gamma(2, size=DRAWN)
    columns = [label, np.exp(label), -label + drawn.normal(scale=0.5, size=DRAWN), drawn.normal(size=DRAWN)]
    columns = [column.astype(np.float32).astype(np.float64) for column in columns]
    correlations = {
        signal.name: signal.value for signal in label_signals(sampled(label, columns, []), ["a", "b", "c", "d"], [])
    }
    for name, column in zip("abcd", columns, strict=True):
        both = pd.DataFrame({"column": column, "label": label})
        pearson, spearman = (both.corr(method).loc["column", "label"] for method in ("pearson", "spearman"))
        assert correlations[name] == pytest.approx(max(abs(pearson), abs(spearman)), abs=1e-9)


def test_correlation_of_strings_and_of_what_is_mostly_missing() -> None:
    drawn = np.random.default_rng(7)
    groups = drawn.integers(1, 50, DRAWN)
    label = groups * 2.5
    gone = np.where(drawn.random(DRAWN) < 0.9, np.nan, np.log(label))
    codes = np.where(drawn.random(DRAWN) < 0.5, 0, groups)  # of strings, 0 is a missing one
    every = np.full(DRAWN, np.nan)
    rows = sampled(label, [gone, every], [groups, np.arange(DRAWN), codes])
    signals = {signal.name: signal for signal in label_signals(rows, ["gone", "every"], ["s", "id", "codes"])}
    assert signals["s"].value == pytest.approx(1)
    assert signals["id"].value < 0.1
    assert signals["gone"].value == pytest.approx(1)
    assert signals["gone"].rows == int(np.isfinite(gone).sum())
    assert signals["codes"].value == pytest.approx(1)
    assert signals["codes"].rows == int(np.count_nonzero(codes))
    assert "every" not in signals
    assert list(label_signals(sampled(np.ones(DRAWN), [label], []), ["a"], [])) == []
