"""Bundles that are run twice, as a runner does that lost a worker: every record is written once, and counted once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tensorflow as tf

from beam_jobs.core.shuffle_plan import ShardOptions
from beam_jobs.preprocess import main
from beam_jobs.runs import write
from schemas.dataset import OpenDataset
from schemas.rejects import Reject
from tests.beam_jobs.transform import test_rejects as odd
from tests.support.datasets import Folder, accounts_hold, contents, rejects_of
from tests.support.image_files import IMAGES, draw, write_folders
from tests.support.people import MEASURED_SCHEMA, people_csv
from tests.support.written_records import examples

pytestmark = [pytest.mark.long, pytest.mark.slow]

# Every bundle is run to its end and its output thrown away; then it is run again.
TWICE = ("--direct_runner_bundle_repeat", "1")


@pytest.mark.parametrize("what", ["rows through the runner's shuffle", "rows that the transform rejects"])
def test_records_come_once(folder: Folder, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """As many, and counted as often, as where no bundle is run twice."""
    options: dict[str, Any] = {}
    if what == "rows that the transform rejects":
        schema, source, options = odd.SCHEMA, folder.write("rows.csv", [odd.HEADER, *odd.ROWS]), {"range_mb": 0.0005}
    else:
        lines = [*people_csv(500).splitlines(), *["too,few"] * 6]
        schema, source, options = MEASURED_SCHEMA, folder.write("rows.csv", lines), {"range_mb": 0.01}
    once = folder.job(schema, source, output=str(folder.path / "once"), **options)
    if "shuffle" in what:
        plan_shards = write.plan_shards

        def through_the_runner(*args: Any) -> ShardOptions:
            """Records are shuffled as on a cluster, and not through files."""
            return dataclasses.replace(plan_shards(*args), num_shards=(4, 1, 1), fragments=None, spills=None)

        monkeypatch.setattr(write, "plan_shards", through_the_runner)
    twice = folder.job(schema, source, output=str(folder.path / "twice"), beam_args=TWICE, **options)
    accounts_hold(twice)
    assert contents(twice) == contents(once)
    for field in ("read", "written", "rejected", "inputs", "counts", "warnings"):
        assert getattr(twice.manifest, field) == getattr(once.manifest, field)
    assert sorted(map(Reject.to_json, rejects_of(twice))) == sorted(map(Reject.to_json, rejects_of(once)))
    if "shuffle" in what:
        files = {f.path.partition("/")[2] for f in once.manifest.files}
        assert {f.path.partition("/")[2] for f in twice.manifest.files} == files
        assert (twice.manifest.written, twice.manifest.rejected) == (500, 6)
    else:
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


def test_a_failed_job_reports_its_rejects_once(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row.replace(",no", ",maybe") if i % 20 == 0 else row for i, row in enumerate(odd.ROWS)]
    path, source = folder.write("schema.yaml", [odd.SCHEMA]), folder.write("rows.csv", [odd.HEADER, *rows])
    options = ["--output", str(folder.output), "--quiet", "--max_rejects", "6", *TWICE]
    assert main(["--schema", path, "--input", source, *options]) == 1
    errors = capsys.readouterr().err
    assert "rejected 7 of 60 " in errors
    assert "rejected: not_finite 4, label_not_in_values 3" in errors
    assert len(folder.failed_rejects()) == 7
