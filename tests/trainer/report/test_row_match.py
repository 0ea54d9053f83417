"""Which rows give a stored record, by values alone."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.evaluation.raw_rows import SHOWN, TOLERANCE, Candidate, Nearest, Place, equal_pairs


def values(rows: list[tuple[float, int, bytes, list[int]]]) -> dict:
    """Features of every form: floats, a vector, strings, and ids of any number."""
    x, i, s, ids = zip(*rows, strict=True)
    return {
        "x": np.array(x, np.float32),
        "v": np.array([[1, a, 2] for a in x], np.float32),
        "i": np.array(i, np.int64),
        "s": np.array(s, object),
        "ids": [np.array(a, np.int64) for a in ids],
    }


ROW: tuple[float, int, bytes, list[int]] = (0.5, 3, b"a", [1, 2])
ROUNDED = float(np.nextafter(np.float32(0.5), np.float32(1)))


@pytest.mark.parametrize(
    ("row", "same"),
    [
        (ROW, True),
        ((ROUNDED, 3, b"a", [1, 2]), True),
        ((0.5 + 10 * TOLERANCE, 3, b"a", [1, 2]), False),
        ((float("nan"), 3, b"a", [1, 2]), False),
        ((float("inf"), 3, b"a", [1, 2]), False),
        ((0.5, 4, b"a", [1, 2]), False),
        ((0.5, 3, b"b", [1, 2]), False),
        ((0.5, 3, b"a", [2, 1]), False),
        ((0.5, 3, b"a", [1]), False),
        ((0.5, 3, b"a", []), False),
    ],
)
def test_every_feature_must_agree(row: tuple[float, int, bytes, list[int]], same: bool) -> None:
    records, rows, _ = equal_pairs(values([ROW]), values([(9.0, 9, b"", []), row]))
    assert list(zip(records.tolist(), rows.tolist(), strict=True)) == ([(0, 1)] if same else [])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_equals_itself(value):
    row: tuple[float, int, bytes, list[int]] = (value, 1, b"", [])
    assert [len(part) for part in equal_pairs(values([row]), values([row, ROW]))] == [1, 1, 1]


@pytest.mark.parametrize("change", [{"x": np.zeros((1, 2), np.float32)}, {"ids": None}, {"more": np.zeros(1)}])
def test_other_features_give_no_pair(change):
    wanted = {name: value for name, value in {**values([ROW]), **change}.items() if value is not None}
    pairs = equal_pairs(wanted, values([ROW]))
    assert len(pairs[0]) == (1 if "ids" in change else 0)


def test_of_many_pairs_those_that_agree():
    """More than are compared at once, by an oracle that compares one by one."""
    rng = np.random.default_rng(1)
    one, other = (rng.integers(0, 2, (rows, 3000)).astype(np.float32) for rows in (20, 300))
    other[::7] = one[rng.integers(0, 20, len(other[::7]))]
    records, rows, distances = equal_pairs({"v": one}, {"v": other})
    expected = {(w, p) for w in range(20) for p in range(300) if (one[w] == other[p]).all()}
    assert set(zip(records.tolist(), rows.tolist(), strict=True)) == expected
    assert not distances.any()


@pytest.mark.parametrize("dtype", [np.int64, np.float32, object])
def test_values_of_any_number_agree_one_by_one(dtype):
    rng = np.random.default_rng(1)
    one, other = ([rng.integers(0, 2, rng.integers(0, 6)).astype(dtype) for _ in range(rows)] for rows in (20, 300))
    records, rows, _ = equal_pairs({"ids": one}, {"ids": other})
    expected = {(w, p) for w in range(20) for p in range(300) if one[w].tolist() == other[p].tolist()}
    assert set(zip(records.tolist(), rows.tolist(), strict=True)) == expected


def nearest_of(*found: tuple[float, str]) -> Nearest:
    """Rows by distance and raw values, one batch after the other of one row each."""
    nearest = Nearest()
    for number, (distance, raw) in enumerate(found):

        def candidate(i: int, far: float, *, number: int = number, raw: str = raw) -> Candidate:
            return Candidate(far, Place("f", number, number), raw)

        nearest.add(np.array([0]), np.array([distance]), candidate)
    return nearest


@pytest.mark.parametrize(
    ("found", "places", "count"),
    [
        ([], [], 0),
        ([(0.0, "a")], [0], 1),
        ([(1e-7, "a"), (0.0, "b"), (1e-7, "c")], [1], 1),  # the nearest one, where it is the only one
        ([(0.0, "a"), (0.0, "b")], [0, 1], 2),  # two that the transform makes equal
        ([(0.0, "a"), (1e-7, "a")], [0, 1], 2),  # two equal rows, one of them rounded otherwise
        ([(0.0, "a")] * 100, list(range(SHOWN)), 100),
    ],
)
def test_the_rows_that_cannot_be_told_apart(found, places, count):
    shown, alike = nearest_of(*found).places()
    assert ([place.offset for place in shown], alike) == (places, count)
