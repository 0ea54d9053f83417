"""What a feature alone tells about the label, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from schemas.profile.label_leaks import LEAST, Drawn, Told, of_classes, of_numbers

ROWS = 3000


def drawn_of(labels: np.ndarray, numbers: list[np.ndarray], codes: list[np.ndarray]) -> Drawn:
    rows = len(labels)
    ranks = np.random.default_rng(9).integers(0, 2**64, rows, np.uint64, endpoint=False)
    matrix = np.stack(numbers, axis=1).astype(np.float32) if numbers else np.empty((rows, 0), np.float32)
    strings = np.stack(codes, axis=1).astype(np.uint64) if codes else np.empty((rows, 0), np.uint64)
    return Drawn(ranks, labels, matrix, strings)


def told(drawn: Drawn, classes: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Told]:
    numbers = [f"n{i}" for i in range(drawn.numbers.shape[1])]
    strings = [f"s{i}" for i in range(drawn.codes.shape[1])]
    if weights is None:
        weights = np.ones(int(classes.max()) + 1)
    return {each.name: each for each in of_classes(drawn, numbers, strings, classes, weights)}


@pytest.mark.parametrize("separation", [0.0, 0.5, 2.0, 6.0])
def test_the_auc_of_numbers_is_scikit_learns(separation: float) -> None:
    """Of a feature that rises with the label, of one that falls, of one with many ties."""
    drawn = np.random.default_rng(1)
    y = drawn.integers(0, 2, ROWS)
    x = drawn.normal(size=ROWS) + separation * y
    found = told(drawn_of(y, [x, -x, np.round(x)], []), y)
    expected = [max(a, 1 - a) for a in (roc_auc_score(y, v.astype(np.float32)) for v in (x, -x, np.round(x)))]
    # A score of bins, which is judged on half of the rows, may be larger by chance.
    assert [found[f"n{i}"].value for i in range(3)] == pytest.approx(expected, abs=0.02)
    assert all(found[f"n{i}"].value >= expected[i] - 1e-12 for i in range(3))


def test_the_auc_of_several_classes_is_that_of_one_against_the_rest() -> None:
    drawn = np.random.default_rng(2)
    y = drawn.choice(4, ROWS, p=[0.5, 0.3, 0.15, 0.05])
    x = y + drawn.normal(scale=0.3, size=ROWS)
    found = told(drawn_of(y, [x], []), y)["n0"]
    of_class = [roc_auc_score(y == c, x.astype(np.float32)) for c in range(4)]
    best = max(max(a, 1 - a) for a in of_class)
    assert found.value >= best - 1e-12
    assert found.value == pytest.approx(best, abs=0.01)
    assert found.of in (0, 3)


def test_a_sample_with_equally_many_rows_of_each_class_is_weighted_back() -> None:
    drawn = np.random.default_rng(3)
    y = drawn.choice(3, 60_000, p=[0.9, 0.08, 0.02])
    x = drawn.normal(size=len(y)) + np.array([0.0, 1.0, 3.0])[y]
    kept = np.concatenate([np.flatnonzero(y == c)[:1000] for c in range(3)])
    weights = np.bincount(y) / np.bincount(y[kept])
    found = told(drawn_of(y[kept], [x[kept]], []), y[kept], weights)["n0"]
    assert found.value == pytest.approx(max(roc_auc_score(y == c, x) for c in range(3)), abs=0.01)


def test_strings_are_judged_on_rows_that_they_were_not_fitted_to() -> None:
    drawn = np.random.default_rng(4)
    y = drawn.integers(0, 2, ROWS)
    copy, noise, unique = 7 + 3 * y, drawn.integers(1, 30, ROWS), np.arange(1, ROWS + 1)
    found = told(drawn_of(y, [], [copy, noise, unique]), y)
    assert found["s0"].value == 1
    assert found["s1"].value == pytest.approx(0.5, abs=0.05)
    assert found["s2"].value == pytest.approx(0.5, abs=0.01)  # a name for each row tells nothing


def test_numbers_that_tell_in_another_way_than_by_their_order() -> None:
    drawn = np.random.default_rng(5)
    y = drawn.integers(0, 2, ROWS)
    beyond = np.where(y == 1, drawn.choice([-1, 1], ROWS) * drawn.uniform(2, 3, ROWS), drawn.uniform(-1, 1, ROWS))
    missing = np.where(y == 1, np.nan, drawn.normal(size=ROWS))  # written for one class only
    some = np.where(drawn.random(ROWS) < 0.5, np.nan, drawn.normal(size=ROWS))
    found = told(drawn_of(y, [beyond, missing, some], []), y)
    assert found["n0"].value > 0.99
    assert found["n1"].value == 1
    assert found["n2"].value < 0.56


def test_too_few_rows_are_not_judged() -> None:
    y = np.repeat([0, 1], [1000, LEAST - 1])
    assert told(drawn_of(y, [y.astype(float)], []), y) == {}
    y = np.repeat([0, 1], [1000, LEAST])
    assert told(drawn_of(y, [y.astype(float)], []), y)["n0"].value == 1


def test_correlations_are_those_of_pandas() -> None:
    drawn = np.random.default_rng(6)
    label = drawn.gamma(2, size=ROWS)
    columns = [label, np.exp(label), -label + drawn.normal(scale=0.5, size=ROWS), drawn.normal(size=ROWS)]
    columns = [column.astype(np.float32).astype(np.float64) for column in columns]
    found = {each.name: each.value for each in of_numbers(drawn_of(label, columns, []), ["a", "b", "c", "d"], [])}
    for name, column in zip("abcd", columns, strict=True):
        both = pd.DataFrame({"column": column, "label": label})
        pearson, spearman = (both.corr(method).loc["column", "label"] for method in ("pearson", "spearman"))
        assert found[name] == pytest.approx(max(abs(pearson), abs(spearman)), abs=1e-9)


def test_correlation_of_strings_and_of_what_is_mostly_missing() -> None:
    drawn = np.random.default_rng(7)
    groups = drawn.integers(1, 50, ROWS)
    label = groups * 2.5
    gone = np.where(drawn.random(ROWS) < 0.9, np.nan, label)
    every = np.full(ROWS, np.nan)
    found = {
        each.name: each.value
        for each in of_numbers(
            drawn_of(label, [gone, every], [groups, np.arange(ROWS)]), ["gone", "every"], ["s", "id"]
        )
    }
    assert found["s"] == pytest.approx(1)
    assert found["id"] < 0.1
    assert found["gone"] < 0.7
    assert "every" not in found
    assert list(of_numbers(drawn_of(np.ones(ROWS), [label], []), ["a"], [])) == []
