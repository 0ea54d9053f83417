"""Images that are not equal and look nearly the same, in two splits or in one."""

from __future__ import annotations

import dataclasses

import numpy as np

from beam_jobs.leakage.near import near_pairs
from beam_jobs.leakage.twins import EXAMPLES
from schemas.spec.table import SPLITS

_FAR = np.iinfo(np.int64).max
_PLACES = 40  # bits of a place, below those of a distance


@dataclasses.dataclass(frozen=True)
class Alike:
    """Images of two splits, or of one, that look nearly the same.

    Attributes:
      splits: the two, the one that comes first in `SPLITS` first; or twice the same.
      records: how many images of the second one look like one of the first that is not equal to them. Those that are
        equal to another one of the first are left out.
      pairs: places, one of the first split beside one of the second, of some that differ least.
    """

    splits: tuple[str, str]
    records: int
    pairs: tuple[tuple[int, int], ...]


def alike(digests: np.ndarray, across: np.ndarray, down: np.ndarray, splits: np.ndarray) -> list[Alike]:
    """Which images look nearly the same, for every two splits, and in every split by itself.

    Args:
      digests: uint64 `[n]`: those of equal files are equal.
      across: uint64 `[n]`: half of each look.
      down: uint64 `[n]`: the other half.
      splits: int8 `[n]`.
    """
    looks = np.stack([across, down, splits.astype(np.uint64), digests], axis=1)
    groups, firsts, group_of = np.unique(looks, axis=0, return_index=True, return_inverse=True)
    group_of = group_of.reshape(-1)
    nearest = _nearest(groups)
    found = []
    for second in range(len(SPLITS)):
        for first in range(second + 1):
            near = nearest[group_of, first]
            places = np.flatnonzero((splits == second) & (near < _FAR))
            if first != second:
                places = places[~np.isin(digests[places], digests[splits == first])]
            if not len(places):
                continue
            best = places[np.lexsort((places, near[places]))]
            others = firsts[near[best] & ((1 << _PLACES) - 1)]
            pairs: dict[frozenset[int], tuple[int, int]] = {}
            for other, place in zip(others.tolist(), best.tolist(), strict=True):
                pairs.setdefault(frozenset((int(group_of[other]), int(group_of[place]))), (other, place))
                if len(pairs) == EXAMPLES:
                    break
            found.append(Alike((SPLITS[first], SPLITS[second]), len(places), tuple(pairs.values())))
    return found


def _nearest(groups: np.ndarray) -> np.ndarray:
    """int64 `[groups, splits]`: the bits that differ from the nearest group of each split, then that group's place.

    _FAR, if there is no near one. A group is a look, a split and a digest: of groups with one look and split, two stand
    for all, since there may be very many.
    """
    nearest = np.full((len(groups), len(SPLITS)), _FAR)
    if not len(groups):
        return nearest
    new = np.concatenate([[True], (groups[1:, :3] != groups[:-1, :3]).any(1)])
    firsts = np.flatnonzero(new)
    again = np.flatnonzero(~new)  # another image of the same look and split
    split_of = groups[:, 2].astype(np.int64)
    of_look = firsts[np.cumsum(new) - 1]
    nearest[again, split_of[again]] = of_look[again]
    np.minimum.at(nearest, (of_look[again], split_of[again]), again)
    for one, other, bits in near_pairs(groups[firsts, 0], groups[firsts, 1]):
        for here, there in ((firsts[one], firsts[other]), (firsts[other], firsts[one])):
            np.minimum.at(nearest, (here, split_of[there]), (bits << _PLACES) | there)
    return np.minimum(nearest, nearest[of_look])
