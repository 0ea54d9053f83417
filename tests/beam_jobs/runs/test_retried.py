"""Bundles that are run twice, as a runner does that lost a worker: every record is written once, and counted once."""

from __future__ import annotations

import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.rejects import Reject
from tests.beam_jobs.transform import test_rejects as odd
from tests.support.datasets import Folder, accounts_hold, contents, rejects_of
from tests.support.image_files import IMAGES, draw, write_folders
from tests.support.written_records import examples

pytestmark = [pytest.mark.long, pytest.mark.slow]

# Every bundle is run to its end and its output thrown away; then it is run again.
TWICE = ("--direct_runner_bundle_repeat", "1")


def test_records_come_once_where_the_transform_rejects_rows(folder: Folder) -> None:
    """As many, and counted as often, as where no bundle is run twice."""
    source = folder.write("rows.csv", [odd.HEADER, *odd.ROWS])
    once = folder.job(odd.SCHEMA, source, output=str(folder.path / "once"), range_mb=0.0005)
    twice = folder.job(odd.SCHEMA, source, output=str(folder.path / "twice"), range_mb=0.0005, beam_args=TWICE)
    accounts_hold(twice)
    assert contents(twice) == contents(once)
    for field in ("read", "written", "rejected", "inputs", "counts", "warnings"):
        assert getattr(twice.manifest, field) == getattr(once.manifest, field)
    assert sorted(map(Reject.to_json, rejects_of(twice))) == sorted(map(Reject.to_json, rejects_of(once)))
    assert twice.manifest.rejected == 4


def test_images_come_once_also_where_they_are_replayed(folder: Folder) -> None:
    disc = folder.path / "raw" / "disc"
    write_folders(folder.path / "raw", per_class=20)
    good = {f"{path.parent.name}/{path.name}" for path in (folder.path / "raw").glob("*/*")}
    for i in range(5):
        (disc / f"no{i}.png").write_text("this is no image")
    before = folder.job(IMAGES, str(folder.path / "raw/*/*"), max_reject_fraction=1.0, beam_args=TWICE)
    assert names_of(before) == sorted(good)
    assert (before.manifest.read, before.manifest.written, before.manifest.rejected) == (45, 40, 5)
    assert len(rejects_of(before)) == 5
    for i in range(3):
        (disc / f"no{i}.png").write_bytes(tf.io.encode_png(draw(0, 7000 + i)).numpy())
    outcome = folder.replay(folder.correct(before), beam_args=TWICE)
    assert (outcome.added, len(outcome.choice.records)) == (3, 5)
    accounts_hold(folder.dataset)
    assert names_of(folder.dataset) == sorted(good | {f"disc/no{i}.png" for i in range(3)})
    assert len(rejects_of(folder.dataset)) == 2


def names_of(dataset: OpenDataset) -> list[str]:
    return sorted(e["image/filename"][0].decode() for split in dataset.splits for e in examples(dataset, split))
