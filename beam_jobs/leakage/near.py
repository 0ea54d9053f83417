"""Looks that are nearly the same, without comparing each with each.

The 128 bits of a look are cut into bands. Two looks that differ in fewer bits than there are bands agree in at least
one, so only looks that share a band are compared ("multi-index hashing", Norouzi, Punjani and Fleet, 2012).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

NEAR = 10  # bits of 128; pairs of up to 7 are all found, of 8 to 10 nearly all
_BAND = 16  # bits
_NEIGHBOURS = 256  # looks that share a band's value and are compared with each one
_ONES = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2), axis=1).sum(1, dtype=np.int64)

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def near_pairs(across: np.ndarray, down: np.ndarray) -> Iterator[Pairs]:
    """Pairs of looks that differ in at most NEAR bits, some at a time: what is held does not grow with their number.

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
        near = np.flatnonzero(bits <= NEAR)
        if len(near):
            one, other = order[left[near]], order[left[near] + step]
            yield np.minimum(one, other), np.maximum(one, other), bits[near]


def _differing(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """int64 `[n]`: the bits that differ between uint64 `[n]` and the same."""
    return _ONES[(left ^ right).view(np.uint16).reshape(-1, 4)].sum(1)
