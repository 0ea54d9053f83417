"""`python -m schemas.dataset`, as it is typed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.dataset import lease
from schemas.dataset.command import main
from schemas.dataset.manifest import read_manifest
from tests.support.dataset_faults import flip
from tests.support.written_datasets import Written, write_csv, write_images

OLD, CRASHED = "20200101T000000Z-0000", "20200101T000001Z-0000"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 500 rows. Not to be changed."""
    return write_csv(tmp_path_factory.mktemp("csv")).path


@pytest.fixture
def out(once: Path, tmp_path: Path) -> Written:
    """The same, with a previous run, the rest of a killed job, and somebody's own file."""
    path = tmp_path / "out"
    shutil.copytree(once, path)
    manifest = read_manifest(str(path)).model_copy(update={"previous": (OLD,)})
    (path / "manifest.json").write_bytes(manifest.to_json())
    for run in (OLD, CRASHED):
        (path / run).mkdir()
        (path / run / "train").write_bytes(b"123")
    (path / "notes.txt").write_text("mine")
    return Written(path, manifest)


def test_verify_says_that_all_is_well(out, capsys):
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
    assert "2 problem(s)" in printed[2]


def test_show_is_a_table_for_a_person(out, capsys):
    assert main(["show", str(out.path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for split, content in out.manifest.splits.items():
        size = sum(shard.bytes for shard in content.shards)
        assert f"{split} {content.rows:,} {len(content.shards)} {size:,}" in lines
    assert "point float32 [3]" in lines
    assert "y int64 [] the label: no, yes" in lines
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


@pytest.mark.slow
def test_show_tells_of_images(tmp_path, capsys):
    data = write_images(tmp_path, "jpeg")
    assert main(["show", str(data.path)]) == 0
    printed = capsys.readouterr().out
    assert "image/class/label  int64   []     the label: bar, disc" in printed
    assert "empty_file" in printed


def test_prune_removes_what_nothing_names_and_says_so(out, capsys):
    assert main(["prune", str(out.path), "--dry_run"]) == 0
    assert f"would remove {CRASHED}, 3 bytes" in capsys.readouterr().out
    assert (out.path / CRASHED).exists()
    assert main(["prune", str(out.path)]) == 0
    printed = capsys.readouterr().out
    assert f"removed {CRASHED}, 3 bytes" in printed
    assert "left alone: notes.txt" in printed
    assert sorted(p.name for p in out.path.iterdir()) == [OLD, out.manifest.run, "manifest.json", "notes.txt"]
    assert main(["prune", str(out.path), "--all"]) == 0
    assert not (out.path / OLD).exists()
    assert main(["verify", str(out.path)]) == 0


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_prune_refuses_while_a_job_is_running(out, capsys, more):
    with lease.hold(str(out.path), run="a job"):
        assert main(["prune", str(out.path), *more]) == 1
    assert "another job is writing to it: run a job" in capsys.readouterr().err
    assert (out.path / CRASHED).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: COMMAND"),
        (["verify"], "DIR --data_dir is required"),
        (["look", "out"], "invalid choice: 'look'"),
        (["verify", "/nowhere/at/all"], "/nowhere/at/all: no such folder"),
        (["verify", "/tmp", "--threads", "0"], "--threads 0: must be 1 or more"),
        (["prune", "/tmp", "--al"], "unrecognized arguments: --al"),
    ],
)
def test_what_is_asked_wrongly_exits_with_2(arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "show", "prune"])
def test_a_folder_without_a_data_set_is_told_and_left_as_it_is(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 2
    assert "no manifest.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_imports_nothing_heavy():
    heavy = {"tensorflow", "apache_beam", "pyarrow", "numpy", "tfx_bsl"}
    code = f"import sys, schemas.dataset.command as c; c.parser(); found = {heavy} & set(sys.modules); assert not found"
    subprocess.run([sys.executable, "-c", code], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "schemas.dataset", "verify", "--help"], capture_output=True, text=True, check=True
    )
    assert "reports every problem" in done.stdout
