"""Links where files that were written should be: found by `verify`, refused by every reader, wherever they lead."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.dataset import open_dataset
from schemas.errors import MillraceError
from tests.support.written_datasets import Written, write_csv


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A valid dataset. Not to be changed."""
    return write_csv(tmp_path_factory.mktemp("linked"))


@pytest.fixture
def data(written: Written, tmp_path: Path) -> Written:
    """A copy to put links into."""
    return Written(Path(shutil.copytree(written.path, tmp_path / "out")), written.manifest)


Put = Callable[[Path, Path], None]


def link(path: Path, target: Path) -> None:
    """Moves what is at a path elsewhere, and has a link lead to it."""
    shutil.move(path, target)
    path.symlink_to(target)


def nowhere(path: Path, _: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


# What becomes a link, relative to the dataset; where what was there is moved, relative to the run; and how.
LINKS = {
    "a shard outside": ("SHARD", "../../elsewhere", link),
    "a shard inside": ("SHARD", "moved.tfrecord", link),
    "a shard that leads nowhere": ("SHARD", "", nowhere),
    "the run": ("RUN", "../../elsewhere", link),
    "the transform": ("RUN/transform_fn", "../../elsewhere", link),
    "a folder of the transform": ("RUN/transform_fn/variables", "../../elsewhere", link),
    "the schema": ("RUN/schema.yaml", "../../elsewhere", link),
}


@pytest.mark.parametrize(("name", "target", "put"), LINKS.values(), ids=LINKS)
def test_verify_reports_a_link_and_no_reader_follows_it(data: Written, name: str, target: str, put: Put) -> None:
    path = name.replace("SHARD", data.shards()[1].path).replace("RUN", data.manifest.run)
    put(data.path / path, Path(os.path.normpath(data.run / target)))
    found = [problem for problem in data.problems() if problem.kind != "extra"]
    assert [(problem.path, problem.kind) for problem in found] == [(path, "link")]
    assert "is a link to " in found[0].message
    with pytest.raises(MillraceError, match=f"{path}: is a link to .* or write the dataset again"):
        open_dataset(str(data.path))


@pytest.mark.parametrize("name", ["assets", "assets.extra", "more"])
def test_an_unlisted_link_to_a_folder_is_found_and_no_graph_is_loaded_beside_it(data: Written, name: str) -> None:
    """`os.walk` does not go into it, so that its files are in no list."""
    elsewhere = data.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "saved_model.cpb").write_bytes(b"x")
    link = data.run / "transform_fn" / name
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(elsewhere)
    assert (f"{data.manifest.run}/transform_fn/{name}", "link") in [(p.path, p.kind) for p in data.problems()]
    with pytest.raises(MillraceError, match=f"transform_fn/{name}: is a link to "):
        _ = open_dataset(str(data.path)).graphs_dir


def test_a_link_anywhere_in_the_run_is_found(data: Written) -> None:
    (data.run / "more").symlink_to(data.path.parent)
    (data.run / "parity" / "again.tfrecord").symlink_to("raw.tfrecord")
    found = [(problem.path, problem.kind) for problem in data.problems()]
    assert found == [(f"{data.manifest.run}/{name}", "link") for name in ("more", "parity/again.tfrecord")]


def test_a_graph_that_becomes_a_link_while_the_dataset_is_open(data: Written) -> None:
    dataset = open_dataset(str(data.path))
    link(data.run / "transform_fn", data.path.parent / "elsewhere")
    with pytest.raises(MillraceError, match=r"transform_fn: is a link to .* No graph is loaded through a link"):
        _ = dataset.graphs_dir


def test_a_pipe_in_a_files_place_does_not_stop_verify(data: Written) -> None:
    for path in (data.path / data.shards()[0].path, data.run / "schema.pbtxt", data.run / "schema.yaml"):
        path.unlink()
        os.mkfifo(path)
    found = {(p.path, p.kind) for p in data.problems()}
    assert {(data.shards()[0].path, "unreadable"), (f"{data.manifest.run}/schema.pbtxt", "unreadable")} <= found


def test_a_dataset_reached_through_links_is_valid(data: Written, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(data.path.parent)
    through = str(tmp_path / "linked" / "out")
    assert Written(Path(through), data.manifest).problems() == []
    assert open_dataset(through).graphs_dir
