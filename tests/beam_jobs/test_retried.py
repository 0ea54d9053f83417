"""Bundles that are run twice, as a runner does that lost a worker: every record is written once, and counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beam_jobs import job, shards
from beam_jobs.job import run_job
from beam_jobs.options import JobOptions
from schemas.dataset import open_dataset
from tests.beam_jobs.drawn_images import write_folders
from tests.beam_jobs.people import people_csv
from tests.beam_jobs.written_records import examples, records

# Every bundle is run to its end and its output thrown away; then it is run again.
TWICE = ("--direct_runner_bundle_repeat", "1")


@pytest.fixture
def through_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are shuffled as on a cluster, and not through files."""
    original = job.plan_shards

    def plan(*args: Any) -> shards.ShardOptions:
        o = original(*args)
        return shards.ShardOptions(o.deal, (4, 1, 1), o.shard_bytes, o.compression, o.staging, False)

    monkeypatch.setattr(job, "plan_shards", plan)


def rejects_of(dataset) -> list[str]:
    return sorted(
        line for path in Path(dataset.run_dir).glob("rejects-*.jsonl") for line in path.read_text().splitlines()
    )


def assert_csv_rows_come_once(people) -> None:
    people.raw.write_text(people_csv(500) + "too,few\n" * 6)
    once = people.run(output=str(people.folder / "once"), range_mb=0.01)
    twice = people.run(output=str(people.folder / "twice"), range_mb=0.01, beam_args=TWICE)
    assert {s: records(twice, s) for s in twice.splits} == {s: records(once, s) for s in once.splits}
    assert sum(twice.rows(s) for s in twice.splits) == 500
    for field in ("read", "written", "rejected", "inputs", "counts"):
        assert getattr(twice.manifest, field) == getattr(once.manifest, field)
    assert len(rejects_of(twice)) == 6
    assert rejects_of(twice) == rejects_of(once)
    files = {f.path.partition("/")[2] for f in once.manifest.files}
    assert {f.path.partition("/")[2] for f in twice.manifest.files} == files


def test_csv_rows_that_go_through_files_come_once(people):
    assert_csv_rows_come_once(people)


@pytest.mark.usefixtures("through_the_runner")
def test_csv_rows_that_go_through_the_runners_shuffle_come_once(people):
    assert_csv_rows_come_once(people)


def test_images_come_once(tmp_path):
    (tmp_path / "schema.yaml").write_text("name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}}\n")
    write_folders(tmp_path / "raw", each=20)
    for i in range(6):
        (tmp_path / "raw" / "disc" / f"no{i}.png").write_text("this is no image")
    options = JobOptions(
        schema=str(tmp_path / "schema.yaml"),
        input=(str(tmp_path / "raw/*/*"),),
        output=str(tmp_path / "out"),
        quiet=True,
        beam_args=TWICE,
    )
    run_job(options)
    dataset = open_dataset(str(tmp_path / "out"))
    names = [e["image/filename"][0].decode() for s in dataset.splits for e in examples(dataset, s)]
    assert sorted(names) == sorted(
        f"{p.parent.name}/{p.name}" for p in (tmp_path / "raw").glob("*/*") if not p.name.startswith("no")
    )
    assert (dataset.manifest.read, dataset.manifest.written, dataset.manifest.rejected) == (46, 40, 6)
    assert len(rejects_of(dataset)) == 6
