"""Bulk inference on images and pairs of them, beside trainer.predict on the same files."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from beam_jobs import predict as bulk
from tests.support.predicted import by_the_job, by_the_trainer, rejects_of, rows_of

pytestmark = pytest.mark.slow


def same_top(row: dict, line: dict) -> bool:
    """Whether a prediction has the class and the most probable classes of trainer.predict's line."""
    top = sorted(row["probabilities"].items(), key=lambda item: -item[1])[: len(line["top_5"])]
    return row["class"] == line["class"] and dict(top) == pytest.approx(line["top_5"], rel=1e-4, abs=1e-6)


@pytest.fixture
def photos(stripes, tmp_path) -> Path:
    """Images of every class, and three files that are none, are cut off, or decode to nothing."""
    raw = Path(stripes.path).parent / "raw"
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in sorted(raw.glob("*/*")):
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    some = sorted(folder.iterdir())
    (folder / "none.jpg").write_bytes(b"this is no image")
    (folder / "cut.png").write_bytes(some[0].read_bytes()[: some[0].stat().st_size // 2])
    damaged = bytearray(some[1].read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = b"\xff\xd8" * 20
    (folder / "damaged.jpg").write_bytes(damaged)
    return folder


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_images(stripes_model, photos, tmp_path, form):
    lines, rejects = by_the_trainer(stripes_model.export, tmp_path, photos / "*")
    more = ("--format", form, "--batch_size", "32")
    manifest = by_the_job(stripes_model.export, tmp_path / "out", photos / "*", more=more)
    rows = rows_of(tmp_path / "out", manifest)
    assert [row["source"] for row in rows] == [line["source"] for line in lines]
    assert all(map(same_top, rows, lines))
    found = rejects_of(tmp_path / "out", manifest)
    assert found == sorted(rejects, key=lambda reject: reject.source)
    assert {Path(reject.source).name for reject in found} >= {"none.jpg", "cut.png"}
    assert manifest.read == len(lines) + len(rejects)


def test_bundles_that_are_run_twice_are_counted_and_written_once(stripes_model, photos, tmp_path):
    more = ("--direct_runner_bundle_repeat", "1")
    manifest = by_the_job(stripes_model.export, tmp_path / "out", photos / "*", more=more)
    assert manifest.read == len(list(photos.iterdir()))
    assert len({row["source"] for row in rows_of(tmp_path / "out", manifest)}) == manifest.predicted


def test_pairs(patterns_model, patterns, tmp_path):
    raw = Path(patterns.path).parent / "raw"
    paths = [str(path.relative_to(raw)) for path in sorted(raw.glob("*/*"))[:6]]
    (tmp_path / "pairs.csv").write_text(
        "left,right\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(paths)) + "one\n../x,y\n"
    )
    more = ("--root", str(raw))
    lines, rejects = by_the_trainer(patterns_model.export, tmp_path, tmp_path / "pairs.csv", more=more)
    manifest = by_the_job(patterns_model.export, tmp_path / "out", tmp_path / "pairs.csv", more=more)
    rows = rows_of(tmp_path / "out", manifest)
    assert [(row["offset"], row["input"]) for row in rows] == [
        (line["line"], {"left": line["left"], "right": line["right"]}) for line in lines
    ]
    assert all(map(same_top, rows, lines))
    assert rejects_of(tmp_path / "out", manifest) == rejects
    assert [reject.reason for reject in rejects] == ["too_few_columns", "path_outside_root"]


def test_files_that_are_no_images_at_all(stripes_model, tmp_path, capsys):
    for i in range(20):
        (tmp_path / f"{i}.jpg").write_text("no image")
    argv = [
        "--saved_model",
        str(stripes_model.export),
        "--input",
        f"{tmp_path}/*.jpg",
        "--output",
        str(tmp_path / "out"),
    ]
    assert bulk.main([*argv, "--quiet"]) == 1
    assert "20 of 20 images read so far were rejected" in capsys.readouterr().err
