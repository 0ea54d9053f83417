"""`millrace preprocess --dry_run`: what a job would read, reject and write, and whether it would start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import millrace
from beam_jobs import dry_run
from beam_jobs.preprocess import main
from schemas.dataset import open_dataset
from schemas.errors import UsageError
from tests.support.commands import assert_light
from tests.support.image_files import IMAGES, write_folders

SCHEMA = """\
name: parcels
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: weight, kind: numeric}
  - {name: amount, kind: numeric, transform: log}
  - {name: depot, kind: category}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: row, train: 0.6, eval: 0.2, test: 0.2}
"""
HEADER = "weight,amount,depot,late\n"
ROW = "%d,3,Cork,no\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `schema.yaml`, and 200 valid rows in `raw.csv`."""
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "raw.csv").write_text(HEADER + "".join(ROW % i for i in range(200)))
    return tmp_path


def command(folder: Path, *more: str, files: str = "raw.csv") -> list[str]:
    places = ["--schema", str(folder / "schema.yaml"), "--output", str(folder / "out")]
    return [*places, "--input", str(folder / files), "--dry_run", *more]


def tried(folder: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int, files: str = "raw.csv") -> Any:
    assert main(command(folder, "--json", *more, files=files)) == code
    return json.loads(capsys.readouterr().out)


def test_the_counts_of_a_small_input_are_those_of_the_job(parcels: Path, tmp_path: Path, capsys) -> None:
    argv = ["--schema", str(parcels / "schema.yaml"), "--input", str(parcels / "raw.csv"), "--dry_run", "--json"]
    assert main([*argv, "--output", str(tmp_path / "out"), "--max_reject_fraction", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    manifest = open_dataset(str(parcels / "data")).manifest
    assert (report["read"], report["rejected"]) == (manifest.read, manifest.rejected)
    assert report["splits"] == {name: split.rows for name, split in manifest.splits.items()}
    shards = sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)
    assert report["bytes"] == pytest.approx(shards, rel=0.4)
    assert (report["would_start"], report["sample"]["share"]) == (True, 1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_tried_without_tensorflow_and_beam(folder: Path) -> None:
    assert_light("millrace", ["preprocess", *command(folder)], code=0, message="the job would start; nothing was")
    assert sorted(path.name for path in folder.iterdir()) == ["raw.csv", "schema.yaml"]


def test_rejects_have_a_reason_an_example_and_the_fraction_that_allows_them(folder: Path, capsys) -> None:
    rows = [*(ROW % i for i in range(80)), *["heavy,3,Cork,no\n"] * 12, *["1,-7,Cork,no\n"] * 6, "1,3,Cork,maybe\n"]
    (folder / "raw.csv").write_text(HEADER + "".join(rows))
    assert main(command(folder)) == 1
    printed = capsys.readouterr().out
    place = len(HEADER + "".join(rows[:80]))
    example = f"{folder}/raw.csv at byte {place:,}: found 'heavy', expected a decimal number"
    assert f"  not_a_number in 'weight': 12 of 99 tried; first {example}" in printed
    assert "  not_finite in 'amount': 6 of 99 tried; first " in printed
    assert "`transform: log` is for values above -1" in printed
    assert "  label_not_in_values in 'late': 1 of 99 tried; first " in printed
    assert "refused    19 of 99 rows would be rejected, more than --max_rejects 10 and --max_reject_fraction" in printed
    assert "or give --max_reject_fraction 0.21" in printed
    assert printed.endswith("the job would be refused; nothing was written\n")
    report = tried(folder, capsys, "--max_reject_fraction", "0.21", code=0)
    assert (report["rejected"], report["max_reject_fraction"], report["problems"]) == (19, None, [])


def test_every_file_that_does_not_fit_is_named(folder: Path, capsys) -> None:
    (folder / "lacking.csv").write_text("weight,amount,late\n1,2,no\n")
    (folder / "photo.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    report = tried(folder, capsys, files="*.csv", code=1)
    assert [problem.split(": ")[0] for problem in report["problems"]] == [
        f"{folder}/lacking.csv",
        f"{folder}/photo.csv",
    ]
    assert "the header lacks the column 'depot'" in report["problems"][0]
    assert report["sample"]["read"] == 200


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEADER, "the input contains no records"),
        (HEADER + "x,3,Cork,no\n", "all rows that were tried would be rejected: 1"),
        (HEADER + ROW % 1, "is empty: it got none of 1 row"),
    ],
)
def test_an_input_that_makes_no_dataset_is_refused(folder: Path, capsys, text: str, problem: str) -> None:
    (folder / "raw.csv").write_text(text)
    assert problem in " ".join(tried(folder, capsys, code=1)["problems"])


@pytest.mark.parametrize("files", [1, 20])
def test_a_large_input_is_estimated_from_a_sample(folder: Path, capsys, monkeypatch, files: int) -> None:
    monkeypatch.setattr(dry_run, "SAMPLE_BYTES", 1 << 16)
    rows = [("heavy" if i % 50 == 0 else str(i % 90 + 10)) + ",3,Cork,no\n" for i in range(100_000)]
    for file in range(files):
        part = rows[file * len(rows) // files : (file + 1) * len(rows) // files]
        (folder / f"raw-{file}.csv").write_text(HEADER + "".join(part))
    (folder / "raw.csv").unlink()
    report = tried(folder, capsys, files="raw-*.csv", code=1)
    assert report["sample"]["share"] < 0.2
    assert report["read"] == pytest.approx(100_000, rel=0.03)
    assert report["rejected"] == pytest.approx(2_000, rel=0.2)
    assert report["splits"]["train"] == pytest.approx(58_800, rel=0.1)
    assert report["max_reject_fraction"] == pytest.approx(0.03, rel=0.2)
    assert "about " in report["problems"][0]


def test_images_are_decoded_as_the_job_decodes_them(tmp_path: Path, capsys) -> None:
    (tmp_path / "schema.yaml").write_text(IMAGES)
    write_folders(tmp_path / "raw", per_class=15)
    (tmp_path / "raw" / "bar" / "text.png").write_text("no image")
    report = tried(tmp_path, capsys, files="raw/*/*", code=0)
    assert (report["read"], report["rejected"], sum(report["splits"].values())) == (31, 1, 30)
    assert report["sample"]["rejected"][0]["reason"] == "not_an_image"
    assert report["bytes"] == pytest.approx(30 * (16 * 16 * 3 + 150), rel=0.2)
    report = tried(tmp_path, capsys, "--max_rejects", "0", files="raw/*/*", code=1)
    assert "1 of 31 images would be rejected" in report["problems"][0]
    report = tried(tmp_path, capsys, files="raw/bar/*", code=1)
    assert "has only the class 'bar'" in report["problems"][0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--input", "none.csv"], "none.csv: no such file"),
        (["--schema", "none.yaml"], "none.yaml: no such schema file"),
        (["--preprocessing_fn", "nowhere:function"], "--preprocessing_fn nowhere:function: No module named 'nowhere'"),
    ],
)
def test_wrong_usage(folder: Path, capsys, more: list[str], message: str) -> None:
    assert main([*command(folder), *more]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_holds_a_dataset_needs_overwrite(parcels: Path, folder: Path, capsys) -> None:
    argv = ["--schema", str(folder / "schema.yaml"), "--input", str(folder / "raw.csv"), "--dry_run"]
    assert main([*argv, "--output", str(parcels / "data")]) == 2
    assert "already contains a dataset. Give --overwrite" in capsys.readouterr().err
    assert main([*argv, "--output", str(parcels / "data"), "--overwrite"]) == 0


def test_the_python_function_writes_a_dataset_or_nothing(folder: Path) -> None:
    with pytest.raises(UsageError, match="dry_run: nothing would be written; use `millrace preprocess --dry_run`"):
        millrace.preprocess(
            schema=folder / "schema.yaml", input=folder / "raw.csv", output=folder / "out", dry_run=True
        )
    assert not (folder / "out").exists()
