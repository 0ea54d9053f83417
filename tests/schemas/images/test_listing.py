"""Images by folder, by list and in pairs."""

from __future__ import annotations

import collections
import os
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.images.items import LISTS
from schemas.images.listing import bundles, list_csv, list_folders, plain
from schemas.images.pairs import TooFewPairs, draw_pairs, split_identities
from schemas.rejects import Reject
from schemas.spec.images import ImageSchema, PairOptions, SplitPairs
from schemas.spec.messages import FORMATS


def test_a_folder_is_a_label() -> None:
    listing = list_folders(["/photos/cat/1.jpg", "/photos/cat/2.jpg", "gs://bucket/photos/dog/1.jpg"])
    assert listing.labels == ("cat", "cat", "dog")
    assert listing.names == ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg")
    assert listing.paths[2] == "gs://bucket/photos/dog/1.jpg"
    assert listing.classes == ("cat", "dog")


@pytest.mark.parametrize("path", ["1.jpg", "./1.jpg", "../1.jpg", "/1.jpg"])
def test_a_file_without_a_folder_has_no_label(path: str) -> None:
    with pytest.raises(UsageError, match="photos"):
        list_folders([path])


@pytest.mark.parametrize("path", ["cat/a\nb.jpg", "ca\rt/a.jpg", "cat/a\x00.jpg"])
def test_a_name_with_a_control_sign_is_a_reject(path: str) -> None:
    listing = list_folders([path, "cat/1.jpg"])
    assert listing.names == ("cat/1.jpg",)
    assert [(r.source, r.stage, r.reason, r.raw) for r in listing.rejects] == [
        (plain(path), "list", "bad_name", path.encode())
    ]


def test_a_name_that_is_not_utf8_is_a_reject_that_keeps_its_bytes() -> None:
    listing = list_folders([os.fsdecode(b"cat/K\xf6ln.jpg"), "cat/1.jpg"])
    assert listing.names == ("cat/1.jpg",)
    (reject,) = listing.rejects
    assert (reject.reason, reject.raw) == ("bad_name", b"cat/K\xf6ln.jpg")
    assert Reject.from_json(reject.to_json()) == reject
    reject.to_json().encode()


def test_bundles() -> None:
    listing = list_folders([f"cat/{i}.jpg" for i in range(5)])
    assert [(b.first, b.names) for b in bundles(listing, 2)] == [
        (0, ("cat/0.jpg", "cat/1.jpg")),
        (2, ("cat/2.jpg", "cat/3.jpg")),
        (4, ("cat/4.jpg",)),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "a" / "link.jpg").symlink_to("/etc/passwd")
    (folder / "a" / "twin.jpg").symlink_to(folder / "a" / "1.jpg")
    return folder


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a/1.jpg,cat", None),
        (" a/1.jpg, cat ", None),
        ('"a/x, y.jpg",cat', None),
        ("a/twin.jpg,cat", None),
        ("a/..jpg,cat", None),
        ("../secret/1.jpg,cat", "path_outside_root"),
        ("a/../../secret/1.jpg,cat", "path_outside_root"),
        ("a\\..\\..\\1.jpg,cat", "path_outside_root"),
        ("/etc/passwd,cat", "path_outside_root"),
        ("C:\\1.jpg,cat", "path_outside_root"),
        ("gs://other/1.jpg,cat", "path_outside_root"),
        ("file:///etc/passwd,cat", "path_outside_root"),
        ("out/1.jpg,cat", "path_outside_root"),
        ("a/link.jpg,cat", "path_outside_root"),
        ("a/\x01.jpg,cat", "bad_name"),
        (",cat", "bad_name"),
        ("a/1.jpg", "too_few_columns"),
        ("a/1.jpg,cat,dog", "too_many_columns"),
        ("a/1.jpg, ", "missing_label"),
        ('"a/1.jpg,cat', "too_few_columns"),  # a quote left open is one bad line, whatever follows
    ],
)
def test_csv_lines(root: Path, line: str, reason: str | None) -> None:
    path = root.parent / "list.csv"
    path.write_text(f"path,label\n{line}\na/2.jpg,dog\n")
    listing = list_csv(str(path), "photos")
    assert listing.paths[-1] == str(root / "a" / "2.jpg")
    assert listing.labels[-1] == "dog"
    if reason is None:
        assert listing.labels == ("cat", "dog")
        assert not listing.rejects
    else:
        (reject,) = listing.rejects
        assert (reject.source, reject.offset, reject.stage, reject.reason) == (str(path), 2, "list", reason)
        assert reject.raw == line.encode()
        assert reject.column == {"missing_label": "label", "path_outside_root": "path", "bad_name": "path"}.get(reason)


def test_the_header_may_be_left_out_and_lines_may_end_anyhow(root: Path) -> None:
    path = root.parent / "list.csv"
    path.write_bytes("\ufeffa/1.jpg,Köln\r\n\r\na/2.jpg,dog".encode())
    listing = list_csv(str(path), str(root))
    assert listing.labels == ("Köln", "dog")
    assert listing.names == ("a/1.jpg", "a/2.jpg")


def test_the_list_must_be_text_and_the_root_a_folder(root: Path) -> None:
    path = root.parent / "list.csv"
    path.write_bytes(b"a/1.jpg,K\xf6ln\n")
    with pytest.raises(UsageError, match="not UTF-8 at byte 9"):
        list_csv(str(path), "photos")
    path.write_bytes(b"a/1.jpg,cat\n")
    with pytest.raises(UsageError, match="no such folder"):
        list_csv(str(path), "nowhere")


def test_every_format_of_images_is_listed():
    assert set(LISTS) == {schema for schema in FORMATS.values() if issubclass(schema, ImageSchema)}


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
