"""Describes the look of an image in 128 bits, and finds images that look alike, such as resized or brighter copies."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np

from schemas.spec.table import SPLITS

EXAMPLES = 5  # pairs of records that are shown
SIDE = 9  # cells across, and down
_ROWS = 72  # of pixels that are looked at, about; more take time and change little
_CLEAR = 1.0  # grey levels by which two cells differ whose order a copy keeps
_CLEAR_BITS = 64  # of 128; an image with fewer is so plain that many others look like it


@dataclasses.dataclass(frozen=True)
class DifferenceHash:
    """A difference hash, as Krawetz describes it ("Kind of like that", 2013), taken in both directions.

    Attributes:
      across: 64 bits: whether the mean brightness of a cell is less than that of the cell on its right.
      down: 64 bits: whether the mean brightness of a cell is less than that of the cell below.
      clear: whether most of these differences are more than noise. Plain images are not compared by their looks.
    """

    across: int
    down: int
    clear: bool


NO_HASH = DifferenceHash(0, 0, False)  # of an image whose pixels are not there


def difference_hash(pixels: np.ndarray) -> DifferenceHash:
    """Computes the difference hash of an image, uint8 `[height, width, 3]`; NO_HASH if the image is too small."""
    pixels = pixels[:: max(1, len(pixels) // _ROWS)]
    height, width = pixels.shape[:2]
    if min(height, width) < SIDE:
        return NO_HASH
    starts, columns, sizes = _cells(height, width)
    # A band has at most 16 rows, so 16 bits hold its sums. Reducing each by itself takes a tenth of `reduceat`'s time.
    rows = pixels.reshape(height, -1).astype(np.uint16)
    bands = np.array([np.add.reduce(rows[a:b], dtype=np.uint16) for a, b in itertools.pairwise((*starts, height))])
    cells = np.add.reduceat(bands, columns, axis=1, dtype=np.int64) / sizes
    corners = cells[:-1, :-1]
    steps = np.array([cells[:-1, 1:] - corners, cells[1:, :-1] - corners]).reshape(2, -1)
    across, down = np.packbits(steps > 0, axis=1).view(">u8").ravel().tolist()
    return DifferenceHash(across, down, bool(np.count_nonzero(np.abs(steps) > _CLEAR) >= _CLEAR_BITS))


@functools.lru_cache(maxsize=256)  # photos come in few sizes
def _cells(height: int, width: int) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """Where the cells of `[height, width, 3]` begin: their rows, and their columns' first values; and their sizes."""
    rows, columns = (np.arange(SIDE) * side // SIDE for side in (height, width))
    sizes = np.outer(np.diff(rows, append=height), 3 * np.diff(columns, append=width))
    return tuple(rows.tolist()), 3 * columns, sizes


MAX_BITS = 10  # bits of 128; pairs of up to 7 are all found, of 8 to 10 nearly all
_BAND = 16  # bits
_NEIGHBOURS = 256  # looks that share a band's value and are compared with each one
_ONES = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2), axis=1).sum(1, dtype=np.int64)

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def similar_pairs(across: np.ndarray, down: np.ndarray) -> Iterator[Pairs]:
    """Yields pairs of looks that differ in at most MAX_BITS bits, in parts, so that memory stays bounded.

    Args:
      across: uint64 `[n]`.
      down: uint64 `[n]`.

    Yields:
      int64 `[pairs]`: the places of one look and of the other one, the smaller place first, and the bits that differ. A
      pair comes once for each band that both share. Of the looks that share a band's value, only the next _NEIGHBOURS
      in the order of their bits are compared with each.
    """
    for word in (across, down):
        for shift in range(0, 64, _BAND):
            yield from _within((word >> np.uint64(shift)) & np.uint64((1 << _BAND) - 1), across, down)


def _within(band: np.ndarray, across: np.ndarray, down: np.ndarray) -> Iterator[Pairs]:
    """The near pairs with the same value of a band."""
    order = np.lexsort((down, across, band))
    band, across, down = band[order], across[order], down[order]
    left = np.arange(len(band))
    for step in range(1, _NEIGHBOURS + 1):
        left = left[: np.searchsorted(left, len(band) - step)]
        left = left[band[left] == band[left + step]]  # sorted: what has no such neighbour has none farther away
        if not len(left):
            return
        bits = _differing(across[left], across[left + step]) + _differing(down[left], down[left + step])
        near = np.flatnonzero(bits <= MAX_BITS)
        if len(near):
            first, second = order[left[near]], order[left[near] + step]
            yield np.minimum(first, second), np.maximum(first, second), bits[near]


def _differing(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """int64 `[n]`: the bits that differ between uint64 `[n]` and the same."""
    return _ONES[(left ^ right).view(np.uint16).reshape(-1, 4)].sum(1)


_FAR = np.iinfo(np.int64).max
_PLACES = 40  # bits of a place, below those of a distance


def find_near_duplicates(
    digests: np.ndarray, across: np.ndarray, down: np.ndarray, splits: np.ndarray
) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
    """Finds images that are not equal and look nearly the same, for every two splits.

    Args:
      digests: uint64 `[n]`: equal files have equal digests.
      across: uint64 `[n]`: half of each look.
      down: uint64 `[n]`: the other half.
      splits: int8 `[n]`.

    Yields:
      Two splits, the one that comes first in `SPLITS` first; how many images of the second look like one of the first
      and are equal to none of them; and the places of EXAMPLES pairs that differ least, an image of the first split
      beside one of the second.
    """
    looks = np.stack([across, down, splits.astype(np.uint64)], axis=1)
    groups, firsts, group_of = np.unique(looks, axis=0, return_index=True, return_inverse=True)
    group_of = group_of.reshape(-1)
    nearest = _nearest(groups)
    for second in range(len(SPLITS)):
        for first in range(second):
            near = nearest[group_of, first]
            places = np.flatnonzero((splits == second) & (near < _FAR))
            places = places[~np.isin(digests[places], digests[splits == first])]
            if not len(places):
                continue
            best = places[np.lexsort((places, near[places]))]
            partners = firsts[near[best] & ((1 << _PLACES) - 1)]
            _, pairs = np.unique(np.stack([partners, group_of[best]]), axis=1, return_index=True)  # each look once
            examples = [(int(partners[i]), int(best[i])) for i in np.sort(pairs)[:EXAMPLES]]
            yield first, second, len(places), examples


def _nearest(groups: np.ndarray) -> np.ndarray:
    """int64 `[groups, splits]`: the bits that differ from the nearest group of each split, then that group's place.

    A group is a look and a split. _FAR, if there is no near one.
    """
    nearest = np.full((len(groups), len(SPLITS)), _FAR)
    split_of = groups[:, 2].astype(np.int64)
    for left, right, bits in similar_pairs(groups[:, 0], groups[:, 1]):
        for here, there in ((left, right), (right, left)):
            np.minimum.at(nearest, (here, split_of[there]), (bits << _PLACES) | there)
    return nearest
