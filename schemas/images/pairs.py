"""Pairs of images of the same or of different identities, drawn from the listing alone, before any image is read."""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import math
import random
from collections.abc import Iterator, Sequence

from schemas.spec.images import PairOptions, SplitPairs


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two places in a listing, whether they show the same identity, and the pair's split."""

    a: int
    b: int
    same: bool
    split: str


class TooFewPairs(Exception):
    """The identities have fewer pairs than the schema asks for: the schema's key, and a message."""

    def __init__(self, key: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.key = key


def split_identities(identities: Sequence[str], pairs: PairOptions) -> dict[str, str]:
    """The split of each identity, each given once: by rank of a seeded hash, so that the shares are met to one."""
    ranked = sorted(identities, key=lambda name: hashlib.blake2b(f"{pairs.seed}:{name}".encode()).digest())
    # Train comes last and takes the rest, so the held-out identities stay held out when its share changes.
    order = tuple(reversed(pairs.splits))
    splits: dict[str, str] = {}
    share, start = 0.0, 0
    for split in order:
        share += getattr(pairs, split).identities
        end = round(share * len(ranked))
        splits |= dict.fromkeys(ranked[start:end], split)
        start = end
    return splits


def draw_pairs(labels: Sequence[str], pairs: PairOptions) -> tuple[Pair, ...]:
    """Pairs of places in `labels`, no pair twice, in a random order within each split; the same for the same input.

    Pairs of one identity are spread over the identities as evenly as their numbers of images allow, so an identity with
    very many images does not dominate; pairs of different identities are drawn uniformly from all of them.

    Raises:
      TooFewPairs: a split's identities have fewer pairs than the schema asks for.
    """
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    splits = split_identities(sorted(places), pairs)
    drawn: list[Pair] = []
    for split in pairs.splits:
        groups = [places[name] for name in sorted(places) if splits[name] == split]
        rng = random.Random(f"{pairs.seed}:{split}")
        wanted: SplitPairs = getattr(pairs, split)
        chosen = [*_same(groups, wanted, split, rng), *_different(groups, wanted, split, rng)]
        rng.shuffle(chosen)
        drawn += chosen
    return tuple(drawn)


def _same(groups: list[list[int]], wanted: SplitPairs, split: str, rng: random.Random) -> Iterator[Pair]:
    totals = [math.comb(len(group), 2) for group in groups]
    _check("same", wanted.same, sum(totals), split, len(groups))
    for group, quota in zip(groups, _even_quotas(totals, wanted.same, rng), strict=True):
        for rank in rng.sample(range(math.comb(len(group), 2)), quota):
            yield _either_way(*_unrank(rank, group), same=True, split=split, rng=rng)


def _unrank(rank: int, group: list[int]) -> tuple[int, int]:
    """The pair (i < j) of the given rank, with rank = j (j - 1) / 2 + i."""
    j = (1 + math.isqrt(1 + 8 * rank)) // 2
    return group[rank - j * (j - 1) // 2], group[j]


def _even_quotas(totals: list[int], wanted: int, rng: random.Random) -> list[int]:
    """How many pairs each identity gets: all the same number, except those that have fewer."""
    quotas = [0] * len(totals)
    open_ = [i for i, total in enumerate(totals) if total]
    while wanted:
        each = wanted // len(open_)
        if each == 0:
            for i in rng.sample(open_, wanted):
                quotas[i] += 1
            return quotas
        for i in open_:
            more = min(each, totals[i] - quotas[i])
            quotas[i] += more
            wanted -= more
        open_ = [i for i in open_ if quotas[i] < totals[i]]
    return quotas


def _different(groups: list[list[int]], wanted: SplitPairs, split: str, rng: random.Random) -> Iterator[Pair]:
    """Pairs each place with all places after its own group, which counts every pair once."""
    places = list(itertools.chain.from_iterable(groups))
    ends = list(itertools.accumulate(len(group) for group in groups))
    end_of = [end for end, group in zip(ends, groups, strict=True) for _ in group]
    before = [0, *itertools.accumulate(len(places) - end for end in end_of)]
    _check("different", wanted.different, before[-1], split, len(groups))
    for rank in rng.sample(range(before[-1]), wanted.different):
        first = bisect.bisect_right(before, rank) - 1
        second = end_of[first] + rank - before[first]
        yield _either_way(places[first], places[second], same=False, split=split, rng=rng)


def _either_way(a: int, b: int, *, same: bool, split: str, rng: random.Random) -> Pair:
    return Pair(a, b, same, split) if rng.random() < 0.5 else Pair(b, a, same, split)


def _check(kind: str, wanted: int, there: int, split: str, identities: int) -> None:
    if wanted > there:
        raise TooFewPairs(
            ("pairs", split, kind),
            f"found {wanted:,}; the identities of this split ({identities:,}) hold {there:,} such pairs; ask for "
            "fewer, or give the split a larger share of the identities",
        )
