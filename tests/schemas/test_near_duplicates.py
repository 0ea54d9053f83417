"""Images that look alike, against comparing all with all, and on copies of photos."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from PIL import ImageEnhance

from schemas.profile.near_duplicates import (
    MAX_BITS,
    NO_HASH,
    DifferenceHash,
    difference_hash,
    find_near_duplicates,
    similar_pairs,
)

SIZE = 160


def brute_force(across: np.ndarray, down: np.ndarray) -> dict[tuple[int, int], int]:
    """The near pairs, by comparing all with all."""
    words = [int(a) << 64 | int(b) for a, b in zip(across, down, strict=True)]
    bits = {(i, j): (words[i] ^ words[j]).bit_count() for i, j in itertools.combinations(range(len(words)), 2)}
    return {pair: count for pair, count in bits.items() if count <= MAX_BITS}


def test_near_pairs_are_those_of_comparing_all_with_all() -> None:
    drawn = np.random.default_rng(3)
    words = drawn.integers(0, 2**64, (150, 2), np.uint64, endpoint=False)
    copies = words[:120].copy()
    for i, copy in enumerate(copies):
        for bit in drawn.choice(128, i % 12, replace=False):
            copy[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    across, down = np.concatenate([words, copies]).T
    pairs = pairs_of(across.copy(), down.copy())
    expected = brute_force(across, down)
    assert pairs.items() <= expected.items()
    missed = [n for pair, n in expected.items() if pair not in pairs]
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
    findings = {
        (first, second): (count, pairs)
        for first, second, count, pairs in find_near_duplicates(digests, across, down, splits)
    }
    for first, second in itertools.combinations(range(3), 2):
        expected = 0
        for i in np.flatnonzero(splits == second).tolist():
            candidates = [j for j in np.flatnonzero(splits == first).tolist() if j != i]
            like = [j for j in candidates if digests[j] != digests[i] and (min(i, j), max(i, j)) in near]
            equal = any(digests[j] == digests[i] for j in candidates)
            expected += bool(like) and not equal
        count, pairs = findings.get((first, second), (0, []))
        assert count == expected
        for a, b in pairs:
            assert digests[a] != digests[b]
            assert (splits[a], splits[b]) == (first, second)
            assert (min(a, b), max(a, b)) in near


def test_plain_and_tiny_images_have_no_look() -> None:
    assert not difference_hash(np.full((64, 64, 3), 200, np.uint8)).clear
    half = np.zeros((64, 64, 3), np.uint8)
    half[:, 32:] = 255
    assert not difference_hash(half).clear
    assert difference_hash(np.zeros((8, 300, 3), np.uint8)) == NO_HASH
    assert difference_hash(np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)).clear


@pytest.mark.parametrize(
    "shape", [(9, 9, 3), (71, 200, 3), (72, 90, 3), (143, 300, 3), (144, 35, 3), (257, 31, 3), (500, 11, 3)]
)
def test_a_look_is_which_cells_are_darker_than_their_neighbours(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    rows = pixels[:: max(1, len(pixels) // 72)]  # about 72 of them are looked at
    bands = [rows[i * len(rows) // 9 : (i + 1) * len(rows) // 9] for i in range(9)]
    width = shape[1]
    cells = [[band[:, j * width // 9 : (j + 1) * width // 9].mean() for j in range(9)] for band in bands]
    across = "".join(str(int(cells[i][j] < cells[i][j + 1])) for i in range(8) for j in range(8))
    down = "".join(str(int(cells[i][j] < cells[i + 1][j])) for i in range(8) for j in range(8))
    image_look = difference_hash(pixels)
    assert (f"{image_look.across:064b}", f"{image_look.down:064b}") == (across, down)


def photos(folder: Path) -> list[PIL.Image.Image]:
    cats_dogs = sorted(folder.glob("images/*/*"))[:120]
    faces = [sorted(person.iterdir())[0] for person in sorted(folder.glob("lfw/*"))]
    return [PIL.Image.open(path).convert("RGB") for path in (*cats_dogs, *faces)]


def look(image: PIL.Image.Image) -> DifferenceHash:
    return difference_hash(np.asarray(image.convert("RGB").resize((SIZE, SIZE), PIL.Image.Resampling.BICUBIC)))


def recompressed(image: PIL.Image.Image) -> PIL.Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=40)
    return PIL.Image.open(data)


COPIES = {
    "resized": lambda image: image.resize((image.width // 2, image.height // 2), PIL.Image.Resampling.LANCZOS),
    "recompressed": recompressed,
    "brightened": lambda image: ImageEnhance.Brightness(image).enhance(1.15),
    "grey": lambda image: image.convert("L"),
}


def arrays(looks: list[DifferenceHash]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x.across for x in looks], np.uint64), np.array([x.down for x in looks], np.uint64)


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_copies_of_photos_are_found_and_different_photos_are_not(real_data: Path, change) -> None:
    images = photos(real_data)
    looks = [look(image) for image in images]
    assert all(image_look.clear for image_look in looks)
    assert pairs_of(*arrays(looks)) == {}  # all are different
    pairs = set(pairs_of(*arrays([*looks, *(look(change(image)) for image in images)])))
    own = {(i, i + len(images)) for i in range(len(images))}
    assert pairs <= own
    assert len(pairs) >= 0.97 * len(images)
