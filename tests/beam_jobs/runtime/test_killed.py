"""Killed jobs and concurrent jobs: what they leave, and what the next job does with it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from schemas.dataset import layout, lease, open_dataset
from schemas.dataset.manifest import Manifest
from schemas.errors import UsageError
from tests.beam_jobs.conftest import Run
from tests.support.people import HEADER, Job, people_csv
from tests.support.written_records import records

pytestmark = pytest.mark.long

IGNORED = "".join(
    f"  - {{name: {name}, kind: ignore}}\n" for name in HEADER.split(",") if name not in ("id", "size", "y")
)
SCHEMA = f"""\
name: people
format: csv
csv: {{header: present}}
features:
  - {{name: id, kind: key}}
  - {{name: size, kind: numeric, transform: none}}
{IGNORED}label: {{name: y, kind: category, values: [no, yes], aliases: {{"yes!": yes}}}}
split: {{by: [id], train: 0.6, eval: 0.2, test: 0.2}}
"""
ROWS = 100
ROUNDS = 4  # each kills one job anywhere and one inside the commit, at moments that every run draws anew
SEED = int(os.environ.get("MILLRACE_KILL_SEED", random.SystemRandom().randrange(10**6)))


@pytest.fixture
def raw(tmp_path: Path) -> Job:
    """A few rows, and a schema that needs no analysis: what is slow here is not what is tested."""
    (tmp_path / "people.yaml").write_text(SCHEMA)
    (tmp_path / "people.csv").write_text(people_csv(ROWS) + "too,few\n" * 3)
    return Job(tmp_path, tmp_path / "people.yaml", tmp_path / "people.csv")


def command(job: Job, output: Path, *more: str) -> list[str]:
    return ["--schema", str(job.schema), "--input", str(job.raw), "--output", str(output), "--quiet", *more]


def assert_whole(output: Path, manifest: Manifest) -> None:
    """Every file that the manifest names is there, byte for byte."""
    for shard in (s for split in manifest.splits.values() for s in split.shards):
        data = (output / shard.path).read_bytes()
        assert len(data) == shard.bytes
        assert google_crc32c.Checksum(data).hexdigest().decode() == shard.crc32c
    for file in manifest.files:
        assert hashlib.sha256((output / file.path).read_bytes()).hexdigest() == file.sha256


def whole_data_set(output: Path) -> Manifest | None:
    """The dataset that is there, if there is one, with every row of the input."""
    if not (output / layout.MANIFEST).exists():
        return None
    dataset = open_dataset(str(output))
    assert_whole(output, dataset.manifest)
    assert sum(sum(records(dataset, split).values()) for split in dataset.splits) == ROWS
    return dataset.manifest


class Output:
    """A folder that jobs are killed on, over and over."""

    def __init__(self, job: Job, name: str, run_jobs: Run) -> None:
        self.job, self.path, self.run_jobs = job, job.folder / name, run_jobs

    def run(self, **kill: Any) -> dict[str, Any]:
        self.before = whole_data_set(self.path)
        (report,) = self.run_jobs({"argv": command(self.job, self.path, "--overwrite"), **kill})
        return report

    def is_killed(self, **kill: Any) -> bool:
        """Whether the job was killed before its end. Either the old dataset or the new one is there, complete."""
        report = self.run(**kill)
        assert report["status"] in (0, -9), report["stderr"]
        now = whole_data_set(self.path)
        if self.before is not None:
            assert now is not None
            assert now.run == self.before.run or now.previous == (self.before.run,)
            assert_whole(self.path, self.before)
        return report["status"] == -9

    def run_unhurt(self) -> dict[str, Any]:
        """It succeeds, and leaves nothing but the current run and the one before."""
        report = self.run()
        assert report["status"] == 0, report["stderr"]
        now = whole_data_set(self.path)
        assert now is not None
        assert now.previous == (() if self.before is None else (self.before.run,))
        assert {p.name for p in self.path.iterdir()} == {layout.MANIFEST, now.run, *now.previous}
        if self.before is not None:
            assert_whole(self.path, self.before)
        named = {s.path for split in now.splits.values() for s in split.shards} | {f.path for f in now.files}
        assert {str(p.relative_to(self.path)) for p in (self.path / now.run).rglob("*") if p.is_file()} == named
        return report


def steps_to_die_at(steps: str, draw: random.Random) -> list[int]:
    """All steps of the commit, or, as often, those about the manifest's: most steps are far from where it matters."""
    every = range(1, len(steps) + 1)
    return list(every) if draw.random() < 0.5 else [n for n in every if "m" in steps[max(0, n - 2) : n + 1]]


def test_a_job_killed_at_any_moment_leaves_the_old_dataset_or_the_new_one_and_the_next_job_cleans_up(raw, run_jobs):
    print(f"MILLRACE_KILL_SEED={SEED}")
    draw = random.Random(SEED)
    output = Output(raw, "a", run_jobs)
    unhurt = output.run_unhurt()
    for n in range(ROUNDS):
        if draw.random() < 0.3:
            output = Output(raw, f"a{n}", run_jobs)
        places = ["anywhere", "committing"]
        draw.shuffle(places)
        while places:  # a moment too late is drawn again
            if places[-1] == "anywhere":
                kill = {"kill_after": draw.uniform(0, unhurt["seconds"])}
            else:
                kill = {"kill_at": draw.choice(steps_to_die_at(unhurt["steps"], draw))}
            if output.is_killed(**kill):
                places.pop()
        unhurt = output.run_unhurt()


def test_of_two_concurrent_jobs_one_commits_and_the_other_fails(raw, run_jobs):
    output = raw.folder / "out"
    for expected_before in (None, ()):
        before = whole_data_set(output)
        assert (before is None) == (expected_before is None)
        argv = command(raw, output, "--overwrite")
        reports = run_jobs({"argv": argv}, {"argv": argv}, {"argv": command(raw, output)})
        won, *lost = sorted(reports, key=lambda r: r["status"])
        assert won["status"] == 0, won["stderr"]
        now = whole_data_set(output)
        assert now is not None
        assert {p.name for p in output.iterdir()} == {layout.MANIFEST, now.run, *now.previous}
        for report in lost:
            if report["status"] == 2:  # it came without --overwrite, and too late
                assert "already contains a dataset" in report["stderr"]
            else:
                assert report["status"] == 1
                assert f"another job is writing to it: run {now.run} on host" in report["stderr"]
                assert "pid" in report["stderr"]
        if before is not None:
            assert_whole(output, before)


def test_a_job_without_overwrite_does_not_replace_what_another_commits_before_it_gets_the_lease(
    raw, run_jobs, monkeypatch
):
    original = lease.hold

    @contextlib.contextmanager
    def late(*args, **kwargs):
        (report,) = run_jobs({"argv": command(raw, raw.output)})
        assert report["status"] == 0, report["stderr"]
        with original(*args, **kwargs) as held:
            yield held

    monkeypatch.setattr(lease, "hold", late)
    with pytest.raises(UsageError, match="already contains a dataset"):
        raw.run()
    now = whole_data_set(raw.output)
    assert now is not None
    assert {p.name for p in raw.output.iterdir()} == {layout.MANIFEST, now.run}
