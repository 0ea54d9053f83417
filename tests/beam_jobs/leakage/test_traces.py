"""RecordHashes of records: bounded, mergeable in any order, and equal records stay together."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.profile import duplicates
from schemas.profile.duplicates import HASH, KEYS, SPLIT, RecordHashes

WIDTH = 8 + 1 + 8 + 8  # bytes of a trace of a key


def keys(values: np.ndarray, splits: np.ndarray, budget: int, first: int = 0) -> RecordHashes:
    found = RecordHashes(KEYS, budget=budget)
    offsets = np.arange(first, first + len(values))
    found.add({HASH: values, SPLIT: splits, "file": np.zeros(len(values), np.int64), "offset": offsets})
    return found


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(0, 2**32), st.randoms())
def test_what_is_kept_depends_on_the_records_alone(sizes: list[int], seed: int, order) -> None:
    drawn = np.random.default_rng(seed)
    values = drawn.integers(0, 2**64, sum(sizes), np.uint64, endpoint=False)
    splits = drawn.integers(0, 3, len(values)).astype(np.int8)
    budget = 100 * WIDTH
    whole = keys(values, splits, budget)
    starts = np.cumsum([0, *sizes])
    parts = [keys(values[start:end], splits[start:end], budget, start) for start, end in itertools.pairwise(starts)]
    order.shuffle(parts)
    merged = RecordHashes(KEYS, budget=budget)
    for part in parts:
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert (merged.records, merged.zeros) == (whole.records, whole.zeros) == (len(values), whole.zeros)
    assert duplicates.ordered(merged.table, "offset").equals(duplicates.ordered(whole.table, "offset"))
    assert whole.table.num_rows <= 100
    assert (np.asarray(whole.table.column(HASH)) >> np.uint64(64 - whole.zeros) == 0).all() if whole.zeros else True


def test_equal_records_of_a_sample_are_found_together() -> None:
    """Of 100,000 values in two splits, a sixteenth is looked at, and all of these are known to be equal."""
    values = np.random.default_rng(1).integers(0, 2**64, 100_000, np.uint64, endpoint=False)
    both = keys(np.concatenate([values, values]), np.repeat([0, 1], 100_000).astype(np.int8), budget=16_000 * WIDTH)
    assert both.share == 1 / 16
    table = both.table
    (found,) = duplicates.shared(np.asarray(table.column(HASH)), np.asarray(table.column(SPLIT)))
    assert found.records == found.of == table.num_rows // 2
    assert found.of == pytest.approx(100_000 / 16, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=60))
def test_shared_values_are_those_of_a_loop(records: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in records], np.uint64)
    splits = np.array([split for _, split in records], np.int8)
    found = {each.splits: each for each in duplicates.shared(values, splits)}
    names = ("train", "eval", "test")
    for second in range(3):
        for first in range(second):
            theirs = {value for value, split in records if split == first}
            expected = sum(value in theirs for value, split in records if split == second)
            each = found.get((names[first], names[second]))
            assert (each.records if each else 0) == expected
            for a, b in each.pairs if each else ():
                assert records[a][0] == records[b][0]
                assert (records[a][1], records[b][1]) == (first, second)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_values_with_two_labels_are_those_of_a_loop(records: list[tuple[int, int]]) -> None:
    values, labels = (np.array([record[i] for record in records]) for i in (0, 1))
    count, pairs = duplicates.with_two_labels(values.astype(np.uint64), labels.astype(np.int64))
    by_value: dict[int, set[int]] = {}
    for value, label in records:
        by_value.setdefault(value, set()).add(label)
    assert count == sum(len(labels) > 1 for labels in by_value.values())
    for a, b in pairs:
        assert records[a][0] == records[b][0]
        assert records[a][1] != records[b][1]
