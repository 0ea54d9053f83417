"""Bundles that are run twice, as a runner does that lost a worker: every record is written once, and counted once."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_jobs.core.options import JobOptions
from beam_jobs.core.shuffle_plan import ShardOptions
from beam_jobs.preprocess import main
from beam_jobs.runs import job
from beam_jobs.runs.job import run_job
from beam_jobs.runs.replay import Outcome
from schemas.dataset import Dataset, open_dataset
from tests.beam_jobs.transform import test_rejects
from tests.support import replaying
from tests.support.image_files import draw, write_folders
from tests.support.people import MEASURED_SCHEMA, Job, make_job, people_csv
from tests.support.replaying import Folder
from tests.support.written_records import examples, records

pytestmark = pytest.mark.long

# Every bundle is run to its end and its output thrown away; then it is run again.
TWICE = ("--direct_runner_bundle_repeat", "1")


@pytest.fixture
def through_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are shuffled as on a cluster, and not through files."""
    original = job.plan_shards

    def plan(*args: Any) -> ShardOptions:
        o = original(*args)
        num_shards = o.num_shards if o.num_shards[0] else (4, 1, 1)
        return dataclasses.replace(o, num_shards=num_shards, fragments=None, spills=None)

    monkeypatch.setattr(job, "plan_shards", plan)


def rejects_of(dataset) -> list[str]:
    return sorted(
        line for path in Path(dataset.run_dir).glob("rejects-*.jsonl") for line in path.read_text().splitlines()
    )


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Dataset]:
    """Rows, and their dataset where no bundle was run twice, through files. Not to be changed."""
    people = make_job(tmp_path_factory.mktemp("once"), MEASURED_SCHEMA)
    people.raw.write_text(people_csv(500) + "too,few\n" * 6)
    return people, people.run(range_mb=0.01)


def assert_csv_rows_come_once(written: tuple[Job, Dataset], output: Path) -> None:
    people, once = written
    twice = people.run(output=str(output), range_mb=0.01, beam_args=TWICE)
    assert {s: records(twice, s) for s in twice.splits} == {s: records(once, s) for s in once.splits}
    assert sum(twice.rows(s) for s in twice.splits) == 500
    for field in ("read", "written", "rejected", "inputs", "counts", "warnings"):
        assert getattr(twice.manifest, field) == getattr(once.manifest, field)
    assert len(rejects_of(twice)) == 6
    assert rejects_of(twice) == rejects_of(once)
    files = {f.path.partition("/")[2] for f in once.manifest.files}
    assert {f.path.partition("/")[2] for f in twice.manifest.files} == files


@pytest.mark.slow
@pytest.mark.usefixtures("through_the_runner")
def test_csv_rows_that_go_through_the_runners_shuffle_come_once(once, tmp_path):
    assert_csv_rows_come_once(once, tmp_path / "twice")


@pytest.mark.slow
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


PAYS = test_rejects  # rows of which the transform rejects some


@pytest.mark.slow
def test_rejects_of_the_transform_come_once(folder):
    source = folder.write("rows.csv", [PAYS.HEADER, *PAYS.ROWS])
    once, twice = (
        folder.job(PAYS.SCHEMA, source, output=str(folder.path / name), beam_args=args, range_mb=0.0005)
        for name, args in (("once", ()), ("twice", TWICE))
    )
    replaying.accounts_hold(twice)
    assert len(rejects_of(twice)) == 4
    assert rejects_of(twice) == rejects_of(once)
    assert (twice.manifest.counts, twice.manifest.warnings) == (once.manifest.counts, once.manifest.warnings)


def test_a_failed_job_reports_its_rejects_once(folder, capsys):
    rows = [row.replace(",no", ",maybe") if i % 20 == 0 else row for i, row in enumerate(PAYS.ROWS)]
    path, source = folder.write("schema.yaml", [PAYS.SCHEMA]), folder.write("rows.csv", [PAYS.HEADER, *rows])
    options = ["--output", folder.output, "--quiet", "--max_rejects", "6", *TWICE]
    assert main(["--schema", path, "--input", source, *options]) == 1
    told = capsys.readouterr().err
    assert "7 of 60 records" in told
    assert "rejected: not_finite 4, label_not_in_values 3" in told
    assert len(PAYS.failed_rejects(folder)) == 7


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Outcome]:
    """A dataset from before a replay, the corrected rows, and the replay where no bundle was run twice.

    Of four rows, two are good, one is refused by the reader and one by the transform.
    """
    folder = Folder(tmp_path_factory.mktemp("replayed"))
    before = folder.job(PAYS.SCHEMA, folder.write("rows.csv", [PAYS.HEADER, *PAYS.ROWS]))
    again = {"k7": PAYS.GOOD[7], "k9": PAYS.GOOD[9], "k11": "k11,1,much,,,yes", "k12": "k12,-7,1,1,1,yes"}
    corrected = folder.correct(before, lambda r: again[r.raw.decode().partition(",")[0]])
    shutil.copytree(folder.output, folder.path / "before")
    return folder.path, corrected, folder.replay(corrected)


def assert_replayed_rows_come_once(folder: Folder, replayed: tuple[Path, str, Outcome]) -> None:
    path, corrected, once = replayed
    shutil.copytree(path / "before", folder.output)
    twice = folder.replay(corrected, beam_args=TWICE)
    dataset, expected = open_dataset(folder.output), open_dataset(str(path / "out"))
    replaying.accounts_hold(dataset)
    assert (twice.added, twice.again) == (once.added, once.again) == (2, 2)
    assert replaying.contents(dataset) == replaying.contents(expected)
    assert rejects_of(dataset) == rejects_of(expected)
    assert dataset.manifest.counts == expected.manifest.counts


@pytest.mark.slow
@pytest.mark.usefixtures("through_the_runner")
def test_replayed_rows_that_go_through_the_runners_shuffle_come_once(folder, replayed):
    assert_replayed_rows_come_once(folder, replayed)


@pytest.mark.slow
def test_replayed_images_come_once(folder):
    schema = "name: shapes\nformat: image_folder\nimages: {resize: {exact: [16, 16]}, store: raw}\n"
    write_folders(folder.path / "raw", each=20)
    for i in range(5):
        (folder.path / "raw" / "disc" / f"no{i}.png").write_text("this is no image")
    before = folder.job(schema, str(folder.path / "raw/*/*"), max_reject_fraction=1.0)
    for i in range(3):
        mended = tf.io.encode_png(draw(0, 7000 + i)).numpy()
        (folder.path / "raw" / "disc" / f"no{i}.png").write_bytes(mended)
    outcome = folder.replay(folder.correct(before, lambda r: r.raw.decode()), beam_args=TWICE)
    assert (outcome.added, outcome.again) == (3, 2)
    dataset = open_dataset(folder.output)
    replaying.accounts_hold(dataset)
    names = [e["image/filename"][0].decode() for s in dataset.splits for e in examples(dataset, s)]
    assert len(names) == len(set(names)) == 43
    assert {f"disc/no{i}.png" for i in range(3)} < set(names)
    assert len(rejects_of(dataset)) == 2


@pytest.mark.slow
def test_pairs_of_images_come_once(folder):
    schema = (
        "name: pairs\nformat: image_pairs\nimages: {resize: {exact: [16, 16]}, store: raw}\n"
        "pairs: {train: {identities: 1, same: 40, different: 40}}\n"
    )
    write_folders(folder.path / "raw", each=10)
    (folder.path / "raw" / "disc" / "000.jpg").write_text("this is no image")
    source = str(folder.path / "raw/*/*")
    once, twice = (
        folder.job(schema, source, output=str(folder.path / name), beam_args=args, max_reject_fraction=1.0)
        for name, args in (("once", ()), ("twice", TWICE))
    )
    assert 0 < twice.manifest.rejected < 80
    assert (twice.manifest.read, twice.manifest.counts) == (80, once.manifest.counts)
    assert replaying.contents(twice) == replaying.contents(once)
    assert rejects_of(twice) == rejects_of(once)
    replaying.accounts_hold(twice)
