"""Pairs: seeded, without repetition, and no identity in two splits."""

from __future__ import annotations

import collections

import pytest

from schemas.images.pairs import TooFewPairs, draw_pairs, split_identities
from schemas.spec.images import PairOptions, SplitPairs

LABELS = [f"person {i % 40}" for i in range(200)] + ["the famous"] * 300


def options(seed: int = 1, *, same: int = 60, different: int = 80) -> PairOptions:
    wanted = {"same": same, "different": different}
    return PairOptions(
        seed=seed, train=SplitPairs(identities=0.6, **wanted), eval=SplitPairs(identities=0.4, same=20, different=20)
    )


def test_pairs_are_what_they_say() -> None:
    pairs = draw_pairs(LABELS, options())
    counts = collections.Counter((p.split, p.same) for p in pairs)
    assert counts == {("train", True): 60, ("train", False): 80, ("eval", True): 20, ("eval", False): 20}
    for pair in pairs:
        assert pair.a != pair.b
        assert (LABELS[pair.a] == LABELS[pair.b]) == pair.same
    assert len({frozenset((p.a, p.b)) for p in pairs}) == len(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_no_identity_is_in_two_splits(seed: int) -> None:
    seen: dict[str, set[str]] = collections.defaultdict(set)
    for pair in draw_pairs(LABELS, options(seed)):
        seen[LABELS[pair.a]].add(pair.split)
        seen[LABELS[pair.b]].add(pair.split)
    assert all(len(splits) == 1 for splits in seen.values())


def test_a_seed_is_a_sample() -> None:
    assert draw_pairs(LABELS, options(1)) == draw_pairs(LABELS, options(1))
    assert draw_pairs(LABELS, options(1)) != draw_pairs(LABELS, options(2))


def test_shares_are_met() -> None:
    names = [f"person {i}" for i in range(120)]
    pairs = PairOptions(
        train=SplitPairs(identities=0.8, same=1, different=1), eval=SplitPairs(identities=0.2, same=1, different=1)
    )
    assert collections.Counter(split_identities(names, pairs).values()) == {"train": 96, "eval": 24}


def test_one_with_very_many_images_does_not_make_up_the_whole() -> None:
    labels = ["a"] * 5 + ["b"] * 5 + ["the famous"] * 100
    pairs = PairOptions(train=SplitPairs(identities=1.0, same=24, different=1))
    same = collections.Counter(labels[p.a] for p in draw_pairs(labels, pairs) if p.same)
    assert same == {"a": 8, "b": 8, "the famous": 8}


def test_every_pair_can_be_drawn() -> None:
    labels = ["a", "a", "a", "b", "b", "c"]
    pairs = PairOptions(train=SplitPairs(identities=1.0, same=4, different=11))
    drawn = {frozenset((p.a, p.b)) for p in draw_pairs(labels, pairs)}
    assert len(drawn) == 15


@pytest.mark.parametrize(("same", "different", "kind"), [(5, 1, "same"), (4, 12, "different")])
def test_more_pairs_than_there_are(same: int, different: int, kind: str) -> None:
    pairs = PairOptions(train=SplitPairs(identities=1.0, same=same, different=different))
    with pytest.raises(TooFewPairs, match=r"the identities of this split \(3\) hold ") as caught:
        draw_pairs(["a", "a", "a", "b", "b", "c"], pairs)
    assert caught.value.key == ("pairs", "train", kind)
