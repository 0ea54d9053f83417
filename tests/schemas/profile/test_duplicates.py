"""RecordHashes of records: bounded, mergeable in any order, and equal records stay together."""

from __future__ import annotations

import io
import itertools
import pickle
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageEnhance

from schemas.profile import duplicates
from schemas.profile.duplicates import HASH, KEYS, SPLIT, RecordHashes
from schemas.profile.near_duplicates import (
    MAX_BITS,
    NO_HASH,
    DifferenceHash,
    difference_hash,
    find_near_duplicates,
    similar_pairs,
)

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


SIZE = 160


def brute_force(across: np.ndarray, down: np.ndarray) -> dict[tuple[int, int], int]:
    """The near pairs, by comparing all with all."""
    words = [int(a) << 64 | int(b) for a, b in zip(across, down, strict=True)]
    found = {}
    for i, one in enumerate(words):
        for j in range(i + 1, len(words)):
            bits = (one ^ words[j]).bit_count()
            if bits <= MAX_BITS:
                found[i, j] = bits
    return found


def test_near_pairs_are_those_of_comparing_all_with_all() -> None:
    drawn = np.random.default_rng(3)
    words = drawn.integers(0, 2**64, (150, 2), np.uint64, endpoint=False)
    copies = words[:120].copy()
    for i, copy in enumerate(copies):
        for bit in drawn.choice(128, i % 12, replace=False):
            copy[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    across, down = np.concatenate([words, copies]).T
    found = pairs_of(across.copy(), down.copy())
    expected = brute_force(across, down)
    assert found.items() <= expected.items()
    missed = [n for pair, n in expected.items() if pair not in found]
    assert not [n for n in missed if n <= 7]
    assert len(missed) <= 0.1 * sum(n > 7 for n in expected.values())


def pairs_of(across: np.ndarray, down: np.ndarray) -> dict[tuple[int, int], int]:
    return {
        (a, b): n
        for chunk in similar_pairs(across, down)
        for a, b, n in zip(*(part.tolist() for part in chunk), strict=True)
    }


def test_images_alike_are_those_of_comparing_all_with_all() -> None:
    """Looks with few bits, so that many are equal or near; digests of which some are equal, whose looks are, too."""
    drawn = np.random.default_rng(5)
    digests = drawn.integers(0, 60, 90).astype(np.uint64)
    halves = [np.array([[0, 1, 3, 7, 0xFFFFFFFF][drawn.integers(5)] for _ in range(60)], np.uint64) for _ in range(2)]
    across, down = (half[digests.astype(int)] for half in halves)
    splits = drawn.integers(0, 3, 90).astype(np.int8)
    near = brute_force(across, down)
    names = ("train", "eval", "test")
    found = {each.splits: each for each in find_near_duplicates(digests, across, down, splits)}
    for second in range(3):
        for first in range(second + 1):
            expected = 0
            for i in np.flatnonzero(splits == second).tolist():
                others = [j for j in np.flatnonzero(splits == first).tolist() if j != i]
                like = [j for j in others if digests[j] != digests[i] and (min(i, j), max(i, j)) in near]
                equal = first != second and any(digests[j] == digests[i] for j in others)
                expected += bool(like) and not equal
            each = found.get((names[first], names[second]))
            assert (each.records if each else 0) == expected
            for a, b in each.pairs if each else ():
                assert digests[a] != digests[b]
                assert (splits[a], splits[b]) == (first, second)
                assert (min(a, b), max(a, b)) in near


def test_very_many_images_of_one_look() -> None:
    """Half of them files of their own, as frames of a film are."""
    digests = np.arange(100_000, dtype=np.uint64) // 2
    splits = (np.arange(100_000) // 3 % 2).astype(np.int8)
    looks = np.zeros(100_000, np.uint64)
    found = {each.splits: each.records for each in find_near_duplicates(digests, looks, looks, splits)}
    assert found["train", "train"] == int((splits == 0).sum())
    equal = np.isin(digests[splits == 1], digests[splits == 0])
    assert found["train", "eval"] == int((~equal).sum())


def test_plain_and_tiny_images_have_no_look() -> None:
    assert not difference_hash(np.full((64, 64, 3), 200, np.uint8)).clear
    half = np.zeros((64, 64, 3), np.uint8)
    half[:, 32:] = 255
    assert not difference_hash(half).clear
    assert difference_hash(np.zeros((8, 300, 3), np.uint8)) == NO_HASH
    assert difference_hash(np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)).clear


def photos(folder: Path) -> list[PIL.Image.Image]:
    cats_dogs = sorted(folder.glob("images/*/*"))[:120]
    faces = [sorted(person.iterdir())[0] for person in sorted(folder.glob("lfw/*"))]
    return [PIL.Image.open(path).convert("RGB") for path in (*cats_dogs, *faces)]


def look(image: PIL.Image.Image) -> DifferenceHash:
    return difference_hash(np.asarray(image.convert("RGB").resize((SIZE, SIZE), PIL.Image.Resampling.BICUBIC)))


def resized(image: PIL.Image.Image) -> PIL.Image.Image:
    return image.resize((image.width // 2, image.height // 2), PIL.Image.Resampling.LANCZOS)


def recompressed(image: PIL.Image.Image) -> PIL.Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=40)
    return PIL.Image.open(data)


def brightened(image: PIL.Image.Image) -> PIL.Image.Image:
    return ImageEnhance.Brightness(image).enhance(1.15)


def grey(image: PIL.Image.Image) -> PIL.Image.Image:
    return image.convert("L")


def arrays(looks: list[DifferenceHash]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x.across for x in looks], np.uint64), np.array([x.down for x in looks], np.uint64)


@pytest.mark.parametrize("change", [resized, recompressed, brightened, grey])
def test_copies_of_photos_are_found_and_different_photos_are_not(real_data: Path, change) -> None:
    images = photos(real_data)
    looks = [look(image) for image in images]
    assert all(each.clear for each in looks)
    assert pairs_of(*arrays(looks)) == {}  # all are different
    found = set(pairs_of(*arrays([*looks, *(look(change(image)) for image in images)])))
    own = {(i, i + len(images)) for i in range(len(images))}
    assert found <= own
    assert len(found) >= 0.97 * len(images)
