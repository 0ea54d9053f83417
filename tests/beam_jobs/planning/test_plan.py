"""The command, on real jobs of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_jobs import plan
from tests.support.people import MEASURED_SCHEMA, make_job, people_csv


@pytest.mark.slow
def test_a_plan_says_what_the_job_then_does(tmp_path: Path, capsys) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(40_000) + "too,few\n" * 400)
    argv = ["--schema", str(job.schema), "--input", str(job.raw), "--sample_mb", "0.4", "--workers", "2", "8"]
    assert plan.main([*argv, "--runner", "DataflowRunner", "--max_reject_fraction", "0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    manifest = job.run(max_reject_fraction=0.5).manifest
    assert 0 < found["sample"] < 0.5
    assert found["input"] == {"files": 1, "bytes": job.raw.stat().st_size}
    assert found["read"] == pytest.approx(manifest.read, rel=0.05)
    for name, split in manifest.splits.items():
        assert found["split_rows"][name] == pytest.approx(split.rows, rel=0.05)
        assert found["split_bytes"][name] == pytest.approx(sum(shard.bytes for shard in split.shards), rel=0.1)
        assert found["split_shards"][name] == len(split.shards)
    assert found["disk"] > sum(found["split_bytes"].values())
    assert [fleet["workers"] for fleet in found["workers"]] == [2, 8]
    assert {path.name for path in tmp_path.iterdir()} <= {job.raw.name, job.schema.name, "out"}


@pytest.mark.slow
def test_a_small_input_is_run_whole_and_rejects_that_would_fail_the_job_are_said(tmp_path: Path, capsys) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(100) + "too,few\n" * 20)
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw)]) == 0
    out, err = capsys.readouterr()
    assert "running the job on all of the input" in err
    assert "planned from all of it" in out
    assert "rejected   about 20 rows" in out
    assert "warning    the job would fail: it allows 10 rejects" in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--sample_mb", "0"], "--sample_mb 0: must be more than 0"),
        (["--workers", "0"], "--workers 0: must be 1 or more"),
        (["--machine_type", "big"], "--machine_type big: unknown"),
        (["--prices", "none.yaml"], "--prices none.yaml: no such file"),
        (["--input", "none.csv"], "none.csv: no such file"),
        (["--schema", "none.yaml"], "none.yaml: no such schema file"),
        (["--runner", "SparkRunner"], "--runner"),
    ],
)
def test_mistakes_are_told_before_any_job_runs(tmp_path: Path, capsys, more: list[str], said: str) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(10))
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw), *more]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "running" not in err


def test_a_job_that_fails_on_a_sample_is_told_in_its_own_words(tmp_path: Path, capsys) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(10).splitlines()[0] + "\n")  # a header alone
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw)]) == 1
    err = capsys.readouterr().err
    assert f"error: the job on a sample failed: {job.raw}: the input contains no records" in err
    assert "millrace-plan" not in err
