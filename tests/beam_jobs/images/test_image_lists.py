"""Images in folders are listed and staged some at a time, each once, with the places that rejects are found by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beam_jobs.images import image_lists
from beam_jobs.images.image_lists import images_in_folders, stage_images, stage_pairs
from schemas.images.pairs import Pair
from schemas.storage import Listing, list_files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Twenty-five names in two folders, three of them bad, of which four are in memory at once."""
    monkeypatch.setattr(image_lists, "AT_ONCE", 4)
    for i in range(25):
        folder = tmp_path / ["cat", "dog"][i % 2]
        folder.mkdir(exist_ok=True)
        name = b"bad-%d\xff.png" % i if i % 10 == 3 else b"bad\n%d.png" % i if i == 8 else b"%d.png" % i
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"x" * i)
    return list_files([f"{tmp_path}/*/*"], on_duplicate=lambda *_: None)


def test_images_and_rejects_are_those_of_the_folders(files):
    listed = images_in_folders(files)
    assert (listed.images, listed.classes, listed.bytes) == (21, ("cat", "dog"), sum(range(25)))
    bundles = list(listed.bundles())
    assert [bundle.first for bundle in bundles][:2] == [0, len(bundles[0].paths)]
    assert max(len(bundle.paths) for bundle in bundles) <= 4
    paths = [path for bundle in bundles for path in bundle.paths]
    assert len(set(paths)) == 21
    for bundle in bundles:
        for path, name, label in zip(bundle.paths, bundle.names, bundle.labels, strict=True):
            assert path.endswith(f"/{name}")
            assert name.partition("/")[0] == label
    rejects = [reject for some in listed.rejects() for reject in some]
    assert {reject.reason for reject in rejects} == {"bad_name"}
    assert len({reject.offset for reject in rejects}) == len(rejects) == 4
    everything = [file.path for file in files]
    assert {os.fsencode(everything[reject.offset]) for reject in rejects} == {reject.raw for reject in rejects}


def test_staged_images_are_those_of_the_list(files, tmp_path):
    listed = images_in_folders(files)
    staged = stage_images(str(tmp_path), listed.bundles())
    read = [bundle for part in range(staged.parts) for bundle in staged.read(part)]
    assert (staged.images, read) == (21, list(listed.bundles()))


def test_staged_pairs_are_read_as_they_were(tmp_path):
    pairs = (Pair(0, 1, True, "train"), Pair(2, 0, False, "eval"))
    table = stage_pairs(str(tmp_path), pairs, ("a.png", "b.png", "c.png")).read()
    assert (table.pairs, table.paths) == (pairs, ("a.png", "b.png", "c.png"))
