"""Plans: samples in the form of the whole input, what two of them say of a job, and how near that is to the job."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from pathlib import Path

import pytest

from beam_jobs import plan
from beam_jobs.core.shuffle_plan import ShardOptions, plan_shuffle
from beam_jobs.planning.estimate import Measured, boosting_memory, line, needs, shards_of
from beam_jobs.planning.report import Prices, about, fleet, machine, percent, read_prices
from beam_jobs.planning.sample import FILES, LEAST_IMAGES, cut, last_end, take
from schemas import storage
from schemas.command import size
from schemas.errors import MillraceError, UsageError
from schemas.spec.images import ImageFolderSchema
from schemas.spec.loader import load_schema, parse_schema
from schemas.spec.table import CsvOptions, Schema
from tests.support.csv_reading import read_all, schema_of, table_schema
from tests.support.datasets import folder_of_people
from tests.support.image_files import write_folders
from tests.support.people import MEASURED_SCHEMA, people_csv

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
    assert found.seconds_between == pytest.approx((24.6, 35.4))


@pytest.mark.parametrize("seconds", [11.0, 12.5, 14.0, 40.0, 60.0])
def test_the_time_lies_between_its_bounds(seconds: float) -> None:
    """Also where a tenth less would have the larger sample take less time than the smaller one."""
    found = needs(SMALL, dataclasses.replace(LARGE, seconds=seconds), lambda split, size: 1)
    least, most = found.seconds_between
    assert least <= found.seconds <= most


def test_a_sample_that_is_everything_is_taken_as_it_is() -> None:
    everything = dataclasses.replace(LARGE, share=1.0)
    found = needs(everything, everything, lambda split, size: 1, loading=(3.0, 4.0))
    assert (found.read, found.seconds, found.start, found.cpu_seconds) == (4000, 21.0, 3.0, 20.0)
    assert found.seconds_between == pytest.approx((19.2, 22.8))  # a job takes a tenth more, or less, another time


@pytest.mark.parametrize(("train", "shards"), [(1 << 20, 4), (640 << 20, 10), (100 << 30, 1600)])
def test_shards_are_counted_as_the_job_cuts_them(train: int, shards: int) -> None:
    shares = {"train": 0.8, "eval": 0.1, "test": 0.1}
    estimated = int(train / 0.8)
    plan = plan_shuffle(shares, estimated_bytes=estimated, num_shards=None, shard_bytes=64 << 20, seed=0)
    options = ShardOptions(plan, (None, None, None), 64 << 20, "none", "staging", fragments=None)
    assert shards_of(options)("train", train) == shards


@pytest.mark.parametrize(
    ("features", "label", "cells", "trees"),
    [
        ("{name: a, kind: numeric, missing: mean, indicator: true}", "kind: numeric", 2, 1),
        ("{name: v, kind: numeric, columns: [v0, v9], transform: {bucketize: 4}}", "kind: category", 10, 1),
        ("{name: t, kind: text}", "kind: category, values: [a, b]", 64, 1),
        ("{name: t, kind: text, length: 5}", "kind: category, values: [a, b, c]", 64, 3),
        ("{name: o, kind: one_hot, columns: [o0, o4]}, {name: k, kind: key}", "kind: numeric", 1, 1),
        ("{name: a, kind: category}, {name: b, kind: bool}", "kind: numeric", 2, 1),
        (
            "{name: a, kind: category}, {name: b, kind: category}, {name: x, kind: cross, of: [a, b], buckets: 9}",
            "kind: numeric",
            2,
            1,
        ),
    ],
)
def test_what_boosted_trees_take_is_by_rows_and_columns(features: str, label: str, cells: int, trees: int) -> None:
    text = f"name: t\nformat: csv\nfeatures: [{features}]\nlabel: {{name: y, {label}}}\n"
    schema = table_schema(text)
    found = boosting_memory(schema, {"train": 400_000, "eval": 100_000, "test": 7})
    assert found == 500_000 * (5 * cells + 24 * trees) + 200_000 * 12 * cells


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
    assert [about(n, "rows") for n in (1, 999, 5_599_952)] == ["about 1 row", "about 999 rows", "about 5,600,000 rows"]
    assert [percent(share) for share in (1.0, 0.083, 0.0004)] == ["all", "8.3 %", "0.04 %"]


@pytest.mark.long
@pytest.mark.slow
def test_a_plan_says_what_the_job_then_does(tmp_path: Path, capsys) -> None:
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
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
    assert found["boosting_memory"] > 0
    assert found["disk"] > sum(found["split_bytes"].values())
    assert [fleet["workers"] for fleet in found["workers"]] == [2, 8]
    assert set(os.listdir(tmp_path)) <= {job.raw.name, job.schema.name, "out"}


@pytest.mark.long
@pytest.mark.slow
def test_a_small_input_is_run_whole_and_rejects_that_would_fail_the_job_are_said(tmp_path: Path, capsys) -> None:
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(100) + "too,few\n" * 20)
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw)]) == 0
    out, err = capsys.readouterr()
    assert err.count("running the job on") == 1
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
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(10))
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw), *more]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "running" not in err


@pytest.mark.long
def test_a_job_that_fails_on_a_sample_is_told_in_its_own_words(tmp_path: Path, capsys) -> None:
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(10).splitlines()[0] + "\ntoo,few\n")
    assert plan.main(["--schema", str(job.schema), "--input", str(job.raw)]) == 1
    err = capsys.readouterr().err
    assert "error: the job on a sample failed: rejected 1 of 1 record, so there is nothing to write" in err
    assert "millrace-plan" not in err


QUOTED = CsvOptions(quoted_newlines=True)
UTF_16 = CsvOptions(encoding="utf-16")


@pytest.mark.parametrize(
    ("data", "options", "kept"),
    [
        (b"a,b\nc,d\ne", CsvOptions(), b"a,b\nc,d\n"),
        (b"a,b\r\nc,d\r\ne", CsvOptions(), b"a,b\r\nc,d\r\n"),
        (b"a,b\rc,d\re", CsvOptions(), b"a,b\rc,d\r"),
        (b'a,"b\nb"\nc,"d\nd', QUOTED, b'a,"b\nb"\n'),
        (b'a,"b\nb"\nc,"d\nd', CsvOptions(), b'a,"b\nb"\nc,"d\n'),  # a record is one line
        # bytes that look like a line end, but are halves of two letters
        ("a\n\u0a0a\u0a0a".encode("utf-16-le"), UTF_16, "a\n".encode("utf-16-le")),
        ("\ufeffa\nb".encode("utf-16-be"), CsvOptions(), "\ufeffa\n".encode("utf-16-be")),
        (b"no end", CsvOptions(), b""),
        (b"", CsvOptions(), b""),
    ],
)
def test_a_cut_is_at_the_end_of_a_record(data: bytes, options: CsvOptions, kept: bytes) -> None:
    assert data[: last_end(data, options)] == kept


SAMPLED_ROWS = "".join(f"{i},{i % 7},{'x' * (i % 50)}\n" for i in range(60_000))


@pytest.mark.parametrize("gzipped", [False, True])
def test_the_beginning_of_a_file_is_copied_as_it_is_and_says_what_it_took(tmp_path: Path, gzipped: bool) -> None:
    path, copy = tmp_path / "all.csv", tmp_path / "some.csv"
    path.write_bytes(gzip.compress(SAMPLED_ROWS.encode()) if gzipped else SAMPLED_ROWS.encode())
    size = path.stat().st_size // 3
    taken = cut(str(path), str(copy), size, CsvOptions())
    copied = gzip.decompress(copy.read_bytes()) if gzipped else copy.read_bytes()
    assert SAMPLED_ROWS.encode().startswith(copied)
    assert copied.endswith(b"\n")
    assert len(copied) / len(SAMPLED_ROWS) == pytest.approx(taken / path.stat().st_size, rel=0.02 if gzipped else 1e-9)
    assert 0.9 * size <= taken <= size


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    members = b"".join(gzip.compress(part.encode()) for part in (SAMPLED_ROWS, SAMPLED_ROWS, "")) + b"\0" * 8
    (tmp_path / "all.csv.gz").write_bytes(members)
    cut(str(tmp_path / "all.csv.gz"), str(tmp_path / "copy"), 10**9, CsvOptions())
    assert gzip.decompress((tmp_path / "copy").read_bytes()) == 2 * SAMPLED_ROWS.encode()


@pytest.mark.parametrize(
    ("data", "size", "said"),
    [
        (b"x" * 1000, 100, "no record ends in its first 100 bytes; give a larger"),
        (gzip.compress(SAMPLED_ROWS.encode())[:-2000], 10**9, "the gzip file is truncated; get a new copy"),
        (gzip.compress(SAMPLED_ROWS.encode())[:10] + b"\xff" * 5000, 10**9, "corrupt gzip data: .*; get a new copy"),
    ],
)
def test_a_file_that_cannot_be_cut_is_told(tmp_path: Path, data: bytes, size: int, said: str) -> None:
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(MillraceError, match=f"bad: {said}"):
        cut(str(tmp_path / "bad"), str(tmp_path / "copy"), size, CsvOptions())


def listing(*patterns: Path | str) -> storage.Listing:
    return storage.list_files([str(p) for p in patterns], on_duplicate=lambda *_: None)


def test_rows_come_from_several_files(tmp_path: Path) -> None:
    for i in range(FILES + 4):
        (tmp_path / f"{i}.csv").write_text("a,b,c\n" + SAMPLED_ROWS)
    schema = schema_of()
    sample = take(schema, listing(tmp_path / "*.csv"), classes=(), size=800_000, folder=str(tmp_path / "sample"))
    assert len(sample.input) == FILES
    read = sum(read_all(Path(path), schema).read for path in sample.input)
    assert read == pytest.approx(sample.share * 60_000 * (FILES + 4), rel=0.06)
    assert sample.share == pytest.approx(800_000 / (len(SAMPLED_ROWS) * (FILES + 4)), rel=0.02)
    assert load_schema(sample.schema) == schema


def test_a_small_input_is_taken_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,x\n")
    (tmp_path / "empty.csv").write_text("")
    sample = take(schema_of(), listing(tmp_path / "*.csv"), classes=(), size=10**6, folder=str(tmp_path / "sample"))
    assert sample.share == 1.0


def test_each_split_that_goes_by_names_is_in_the_sample(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"train-{i}.csv").write_text("a,b,c\n" + SAMPLED_ROWS)
    (tmp_path / "held-out.csv").write_text("a,b,c\n" + SAMPLED_ROWS)
    schema = schema_of(split={"by": "file", "train": "*train-*.csv", "eval": "*held-out.csv"})
    sample = take(schema, listing(tmp_path / "*.csv"), classes=(), size=10**5, folder=str(tmp_path / "sample"))
    folders = [Path(path).parent.name for path in sample.input]
    assert (folders.count("train"), folders.count("eval")) == (FILES, 1)
    again = load_schema(sample.schema)
    assert isinstance(again, Schema)
    rows = [read_all(Path(path), again, with_split=True).column("_split") for path in sample.input]
    assert {split for column in rows for split in column} == {0, 1}


def test_images_keep_their_folders_and_all_classes(tmp_path: Path) -> None:
    write_folders(tmp_path / "raw", each=100)
    text = b"name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}}\n"
    text += b"split: {by: content, train: 0.8, eval: 0.1, test: 0.1}\n"
    schema = parse_schema(text, "shapes.yaml")
    files = listing(f"{tmp_path}/raw/*/*")
    sample = take(schema, files, classes=("disc", "square"), size=1, folder=str(tmp_path / "sample"))
    assert (len(sample.input), sample.share) == (LEAST_IMAGES, LEAST_IMAGES / len(files))
    assert set(sample.input) <= {file.path for file in files}
    again = load_schema(sample.schema)
    assert isinstance(again, ImageFolderSchema)
    assert again.label.values == ("disc", "square")
    everything = take(schema, files, classes=(), size=10**9, folder=str(tmp_path / "whole"))
    assert everything.share == 1.0


def test_listed_images_keep_their_root(tmp_path: Path) -> None:
    write_folders(tmp_path / "raw", each=3)
    lines = [f"{path.relative_to(tmp_path / 'raw')},{path.parent.name}" for path in (tmp_path / "raw").glob("*/*")]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    text = b"name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, listing: csv, root: raw}\n"
    text += b"split: {by: content, train: 0.8, eval: 0.1, test: 0.1}\n"
    schema = parse_schema(text, "shapes.yaml")
    files = listing(tmp_path / "list.csv")
    sample = take(schema, files, classes=(), size=1, folder=str(tmp_path / "sample"))
    assert sample.share == 1.0
    again = load_schema(sample.schema)
    assert isinstance(again, ImageFolderSchema)
    assert again.images.root == str(tmp_path / "raw")
    (path,) = sample.input
    assert Path(path).read_text().splitlines() == ["path,label", *lines]


def test_pairs_are_refused_in_one_line(tmp_path: Path) -> None:
    schema = load_schema("schemas/faces.yaml")
    with pytest.raises(UsageError, match=r"pairs of images cannot be planned from a sample"):
        take(schema, listing(__file__), classes=(), size=1, folder=str(tmp_path / "sample"))
