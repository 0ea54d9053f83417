"""A plan: what two samples say of a job, and how near that is to the job."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from beam_jobs import plan
from beam_jobs.core.shuffle_plan import ShardOptions, plan_shuffle
from beam_jobs.planning.estimate import Measured, line, needs, shards_of
from beam_jobs.planning.report import Prices, about, fleet, machine, percent, read_prices, size
from schemas.errors import UsageError
from tests.support.people import MEASURED_SCHEMA, make_job, people_csv

SMALL = Measured(
    share=0.1,
    read=1000,
    rejected=10,
    split_rows={"train": 800, "eval": 190},
    split_bytes={"train": 80_000, "eval": 19_000},
    seconds=12.0,
    cpu_seconds=10.0,
    memory=700,
    disk=2_000,
)
LARGE = dataclasses.replace(
    SMALL,
    share=0.4,
    read=4000,
    rejected=40,
    split_rows={"train": 3200, "eval": 760},
    split_bytes={"train": 320_000, "eval": 76_000},
    seconds=18.0,
    cpu_seconds=16.0,
    memory=600,
    disk=8_000,
)


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [
        ((0.1, 12.0), (0.4, 18.0), (10.0, 30.0)),
        ((0.1, 12.0), (0.4, 11.0), (0.0, 27.5)),  # the larger took less: noise, so all of it is taken to grow
        ((0.1, 1.0), (0.4, 8.0), (0.0, 20.0)),  # more than in proportion: no fixed part, which would be negative
        ((1.0, 9.0), (1.0, 9.0), (0.0, 9.0)),
    ],
)
def test_a_need_is_a_line_through_two_samples(small, large, expected) -> None:
    assert line(small, large) == pytest.approx(expected)


def test_the_needs_of_the_whole_input() -> None:
    found = needs(SMALL, LARGE, lambda split, size: size // 100_000)
    assert (found.read, found.rejected, found.bytes) == (10_000, 100, 990_000)
    assert found.split_rows == {"train": 8_000, "eval": 1_900}
    assert found.split_bytes == {"train": 800_000, "eval": 190_000}
    assert found.split_shards == {"train": 8, "eval": 1}
    assert (found.seconds, found.start, found.cpu_seconds) == pytest.approx((30.0, 10.0, 28.0))
    assert (found.memory, found.disk) == (700, 20_000)


def test_a_sample_that_is_everything_is_taken_as_it_is() -> None:
    found = needs(SMALL, dataclasses.replace(LARGE, share=1.0), lambda split, size: 1)
    assert (found.read, found.seconds, found.cpu_seconds) == (4000, 18.0, 16.0)


@pytest.mark.parametrize(("train", "shards"), [(1 << 20, 4), (640 << 20, 10), (100 << 30, 1600)])
def test_shards_are_counted_as_the_job_cuts_them(train: int, shards: int) -> None:
    shares = {"train": 0.8, "eval": 0.1, "test": 0.1}
    estimated = int(train / 0.8)
    plan = plan_shuffle(shares, estimated_bytes=estimated, num_shards=None, shard_bytes=64 << 20, seed=0)
    options = ShardOptions(plan, (None, None, None), 64 << 20, "none", "staging", fragments=None)
    assert shards_of(options)("train", train) == shards


def test_more_workers_are_faster_and_cost_what_they_work() -> None:
    found = dataclasses.replace(needs(SMALL, LARGE, lambda split, size: 1), cpu_seconds=36_000.0)
    prices = Prices(
        vcpu_hour=(0.05, 0.1), memory_gb_hour=(0.0, 0.0), shuffled_gb=(0.0, 0.0), ten_thousand_reads=(1.0, 1.0)
    )
    kind = machine("n2-standard-4")
    one, ten = (fleet(found, workers, kind, prices, images=False) for workers in (1, 10))
    assert one.seconds == pytest.approx((120 + 9_000, 360 + 27_000))
    assert ten.seconds == pytest.approx((120 + 900, 360 + 2_700))
    assert one.cost == pytest.approx((one.seconds[0] / 3600 * 4 * 0.05, one.seconds[1] / 3600 * 4 * 0.1))
    assert ten.cost[0] == pytest.approx(ten.seconds[0] / 3600 * 40 * 0.05)
    photos = fleet(found, 1, kind, prices, images=True)
    assert photos.cost[0] - one.cost[0] == pytest.approx(2.0)  # 10,000 images, read twice each


def test_machines_have_the_memory_of_their_family() -> None:
    found = {name: (machine(name).vcpus, machine(name).memory_gb) for name in ("n1-standard-4", "e2-highmem-8")}
    assert found == {"n1-standard-4": (4, 15.0), "e2-highmem-8": (8, 64.0)}


@pytest.mark.parametrize("name", ["", "n2", "n2-standard-0", "n2-standard-x", "z9-standard-4", "t2d-highmem-4"])
def test_an_unknown_machine_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match=f"--machine_type {name}: unknown; expected FAMILY-standard-N"):
        machine(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vcpu_hour: [1, 2]", r"memory_gb_hour: Field required"),
        ("[", r"not YAML: "),
        ("3", r"the whole file: "),
        (
            "{vcpu_hour: [2, 1], memory_gb_hour: [0, 0], shuffled_gb: [0, 0], ten_thousand_reads: [0, 0]}",
            r"vcpu_hour: \[2, 1\] is not from the least to the most",
        ),
        (
            "{vcpu_hour: [.nan, 1], memory_gb_hour: [0, 0], shuffled_gb: [0, 0], ten_thousand_reads: [0, 0]}",
            r"vcpu_hour",
        ),
    ],
)
def test_prices_that_are_none_are_a_usage_error(tmp_path, text: str, said: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"--prices .*prices.yaml:.* .*{said}"):
        read_prices(str(path))


def test_prices_that_ship_are_read_and_a_missing_file_is_told(tmp_path) -> None:
    assert read_prices(None).currency == "USD"
    with pytest.raises(UsageError, match="no such file"):
        read_prices(str(tmp_path / "none.yaml"))


def test_numbers_are_written_for_people() -> None:
    assert [size(n) for n in (0, 999, 1_000, 12_345, 724_000_000, 3.2e12)] == [
        "0 bytes",
        "999 bytes",
        "1 kB",
        "12.3 kB",
        "724 MB",
        "3.2 TB",
    ]
    assert [about(n) for n in (7, 999, 5_599_952)] == ["7", "999", "5,600,000"]
    assert [percent(share) for share in (1.0, 0.083, 0.0004)] == ["all", "8.3 %", "0.04 %"]


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_job_that_fails_on_a_sample_is_told_in_its_own_words(tmp_path: Path, capsys) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(10).splitlines()[0] + "\n")  # a header alone
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw)]) == 1
    err = capsys.readouterr().err
    assert f"error: the job on a sample failed: {job.raw}: the input contains no records" in err
    assert "millrace-plan" not in err
