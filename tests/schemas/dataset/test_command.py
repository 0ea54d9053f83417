"""`python -m schemas.dataset`, as it is typed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from schemas.dataset import layout, lease
from schemas.dataset.command import main
from schemas.dataset.holders import JobReference, RemoteHolder
from schemas.dataset.manifest import read_manifest
from schemas.dataset.statistics import chosen, read_statistics, render
from schemas.errors import MillraceError
from tests.support.dataset_faults import Written, flip

OLD, CRASHED = "20200101T000000Z-0000", "20200101T000001Z-0000"


@pytest.fixture
def out(people_dataset: Written, tmp_path: Path) -> Written:
    """A dataset of 500 rows, with a previous run, the rest of a killed job, and somebody's own file."""
    path = tmp_path / "out"
    shutil.copytree(people_dataset.path, path)
    manifest = people_dataset.manifest.model_copy(update={"previous": (OLD,)})
    (path / "manifest.json").write_bytes(manifest.to_json())
    for run in (OLD, CRASHED):
        (path / run).mkdir()
        (path / run / "train").write_bytes(b"123")
    (path / "notes.txt").write_text("mine")
    return Written(path, manifest)


def test_verify_reports_a_valid_dataset(out, capsys):
    assert main(["verify", str(out.path)]) == 0
    printed = capsys.readouterr().out
    assert f"{out.path}: valid. Read" in printed
    assert "500 rows" in printed
    assert "GB/s" in printed


def test_verify_names_every_problem_and_exits_with_1(out, capsys):
    for shard in out.shards()[:2]:
        flip(out.path / shard.path, 20)
    assert main(["verify", str(out.path), "--threads", "1", "--quiet"]) == 1
    printed = capsys.readouterr().out.splitlines()
    for line, shard in zip(printed, out.shards()[:2], strict=False):
        assert line.startswith(f"{shard.path}: record 0 at bytes 0 to ")
    assert "2 problems" in printed[2]


def test_show_is_a_table_for_a_person(out, capsys):
    assert main(["show", str(out.path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for split, content in out.manifest.splits.items():
        size = sum(shard.bytes for shard in content.shards)
        assert f"{split} {content.rows:,} {len(content.shards)} {size:,}" in lines
    assert "point float32 [3]" in lines
    assert "y int64 [] the label: no, yes" in lines
    assert "places-*.arrow beside the shards: the file and the offset of each record's row" in lines
    assert "too_few_columns parse 3" in lines
    assert f"previous {OLD}" in lines
    assert f"unnamed {CRASHED}" in lines
    assert "foreign notes.txt" in lines


def test_show_is_json_for_a_program(out, capsys):
    assert main(["show", str(out.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["splits"]["train"]["rows"] == out.manifest.splits["train"].rows
    assert {"name": "age", "dtype": "float32", "shape": []} in shown["features"]
    assert (shown["label"], shown["classes"]) == ("y", ["no", "yes"])
    assert (shown["read"], shown["written"], shown["rejected"]) == (503, 500, 3)
    assert shown["rejects"] == [{"stage": "parse", "reason": "too_few_columns", "rows": 3}]
    assert shown["inputs"][0]["read"] == 503
    assert shown["runs"]["in_use"] == [out.manifest.run]
    assert "tensorflow" in shown["versions"]


def test_prune_removes_unreferenced_files_and_lists_them(out, capsys):
    assert main(["prune", str(out.path), "--dry_run"]) == 0
    assert f"would remove {CRASHED}, 3 bytes" in capsys.readouterr().out
    assert (out.path / CRASHED).exists()
    assert main(["prune", str(out.path)]) == 0
    printed = capsys.readouterr().out
    assert f"removed {CRASHED}, 3 bytes" in printed
    assert "left alone: notes.txt" in printed
    assert sorted(os.listdir(out.path)) == [OLD, out.manifest.run, "manifest.json", "notes.txt"]
    assert main(["prune", str(out.path), "--all"]) == 0
    assert not (out.path / OLD).exists()
    assert main(["verify", str(out.path)]) == 0


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_prune_refuses_while_a_job_is_running(out, capsys, more):
    with lease.hold(str(out.path), run="a job"):
        assert main(["prune", str(out.path), *more]) == 1
    assert "another job is writing to it: run a job" in capsys.readouterr().err
    assert (out.path / CRASHED).exists()


@pytest.fixture
def unwritten(tmp_path: Path) -> Path:
    """An output in which no job has committed: one was killed."""
    (tmp_path / CRASHED / "staging").mkdir(parents=True)
    (tmp_path / CRASHED / "staging" / "part").write_bytes(b"abc")
    return tmp_path


def test_prune_cleans_up_an_output_without_a_manifest(unwritten, capsys):
    assert main(["prune", str(unwritten), "--dry_run"]) == 0
    assert f"would remove {CRASHED}, 3 bytes" in capsys.readouterr().out
    assert main(["prune", str(unwritten)]) == 0
    assert f"removed {CRASHED}, 3 bytes" in capsys.readouterr().out
    assert os.listdir(unwritten) == []


def test_prune_names_the_remote_job_that_holds_an_output_and_removes_nothing(unwritten, capsys):
    run = "20200101T000002Z-0000"
    job = JobReference(runner="DataflowRunner", id="1", project="p", region="r")
    with lease.hold(str(unwritten), run=run) as job_lease:
        job_lease.hand_over(RemoteHolder(run=run, job=job, since="2020-01-01T00:00:02+00:00"))
    assert main(["prune", str(unwritten)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"a job on a cluster is writing to it: run {run}, job 1 of DataflowRunner" in line
    assert set(os.listdir(unwritten)) == {CRASHED, layout.LEASE}


@pytest.mark.parametrize("command", ["verify", "show", "stats", "prune"])
def test_a_folder_without_a_dataset_is_an_error_and_unchanged(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 2
    assert "no manifest.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def written(people_dataset: Written) -> Path:
    return people_dataset.path


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "out")
    return tmp_path / "out"


def statistics_file(data_dir: Path) -> Path:
    return data_dir / read_manifest(str(data_dir)).run / layout.STATISTICS_JSON


def test_the_command_prints_a_line_for_each_feature_and_split(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", str(written)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    rows = {name: split.rows for name, split in read_manifest(str(written)).splits.items()}
    assert lines[0] == ", ".join(f"{name}: {count:,} records" for name, count in rows.items())
    assert [line.split()[0] for line in lines if " train " in line and "records" not in line] == [
        *("age", "size", "point[p0]", "point[p1]", "point[p2]"),
        *("id", "y"),
    ]
    age = next(line for line in lines if line.startswith("age "))
    assert age.split()[:3] == ["age", "train", f"{found(written, 'age')['count']:,}"]
    assert "y (label)  train" in out
    assert "~" not in out  # few rows: all is exact


def found(data_dir: Path, name: str) -> dict:
    features = read_statistics(str(data_dir))["features"]
    return next(item for item in features if item["name"] == name)["splits"]["train"]


def test_json_of_one_split_and_one_feature(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(written), "--split", "eval", "--feature", "point", "y", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert list(output["splits"]) == ["eval"]
    assert [item["name"] for item in output["features"]] == ["point[p0]", "point[p1]", "point[p2]", "y"]
    assert {split for item in output["features"] for split in item["splits"]} == {"eval"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "evil"], "--split evil: this dataset has no such split; it has train, eval, test"),
        (["--feature", "agee"], "--feature agee: this dataset has no such feature; it has age, id, point, size, y"),
    ],
)
def test_names_that_are_not_there(written: Path, capsys: pytest.CaptureFixture[str], arguments, message) -> None:
    assert main(["stats", str(written), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_damaged_statistics_are_one_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = statistics_file(copy)
    path.write_text('{"format_version": 1, "spl')
    assert main(["stats", str(copy)]) == 1
    err = capsys.readouterr().err
    assert f"{path}: cannot be read" in err
    assert "write the dataset again" in err
    assert main(["verify", str(copy), "--quiet"]) == 1  # the manifest has its checksum
    assert layout.STATISTICS_JSON in capsys.readouterr().out
    path.write_text('{"format_version": 2}')
    with pytest.raises(MillraceError, match=r"is of format version 2; this release reads version 1"):
        read_statistics(str(copy))


def test_estimates_missing_values_and_odd_characters_are_shown_as_such() -> None:
    number = {
        "count": 9_000,
        "missing": 1_000,
        "mean": 1.5,
        "std": 0.25,
        "min": -1e30,
        "max": 1e30,
        "zeros": 0,
        "distinct": 5_000,
        "distinct_exact": False,
        "top_values": [],
        "top_values_error": 8,
        "quantiles": {"ranks": [0.25, 0.5, 0.75], "values": [1, 1.5, 2], "exact": False},
    }
    string = {
        "count": 4,
        "missing": 0,
        "distinct": 3,
        "distinct_exact": True,
        "top_values_error": 1,
        "length": {"mean": 2, "min": 1, "max": 40},
        "top_values": [{"value": "東京", "count": 2}, {"value": "a\nb", "count": 1}, {"value": "x" * 40, "count": 1}],
    }
    nothing = {"count": 0, "missing": 4}
    statistics = {
        "sketches": {"rank_error": 0.0068, "distinct_values": 1024, "frequent_values": 1024},
        "splits": {"train": {"rows": 10_000}},
        "features": [
            {"name": "n", "feature": "n", "role": "feature", "type": "number", "splits": {"train": number}},
            {"name": "m", "feature": "m", "role": "feature", "type": "number", "splits": {"train": nothing}},
            {"name": "s", "feature": "s", "role": "label", "type": "string", "splits": {"train": string}},
        ],
    }
    lines = render(chosen(statistics)).splitlines()
    assert next(line for line in lines if line.startswith("n ")).split() == [
        *("n", "train", "9,000", "1,000", "(10.0%)", "1.5", "0.25", "-1e+30"),
        *("~1", "~1.5", "~2", "1e+30", "~5,000"),
    ]
    assert next(line for line in lines if line.startswith("m ")).split() == ["m", "train", "0", "4", "(100.0%)"]
    word = next(line for line in lines if line.startswith("s (label)"))
    assert word.endswith(f"1-40  東京 >=50.0%, a\\nb >=25.0%, {'x' * 21}... >=25.0%")
    assert "0.7%" in lines[-1]
    assert "3.1%" in lines[-1]
