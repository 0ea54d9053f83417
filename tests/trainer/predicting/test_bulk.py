"""Bulk inference on rows, images and pairs, beside trainer.predict on the same files."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from beam_jobs import predict as bulk
from schemas.predictions.manifest import PredictionsManifest
from tests.support.commands import assert_held
from tests.support.predicted import by_the_job, by_the_trainer, rejects_of, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(titanic_csv, tmp_path_factory) -> Path:
    """Rows in every form that files have, three bad ones, and a file without rows."""
    folder = tmp_path_factory.mktemp("raw")
    header, *lines = titanic_csv.read_text().splitlines(keepends=True)
    (folder / "plain.csv").write_text(
        "".join([header, *lines[:200], "too,few\n", '1,0,"A, ""B""",female,29,many,0,PC 1,1.5,?,S,?,?,?\n'])
    )
    (folder / "zipped.csv.gz").write_bytes(gzip.compress("".join([header, *lines[200:400]]).encode()))
    (folder / "utf16.csv").write_bytes("".join([header, *lines[400:600]]).encode("utf-16"))
    unlabelled = [[cell for i, cell in enumerate(row) if i != 1] for row in csv.reader([header, *lines[600:800]])]
    with (folder / "unlabelled.csv").open("w", newline="") as file:
        csv.writer(file).writerows(unlabelled)
    (folder / "nul.csv").write_text("".join([header, lines[0].replace(",female,", ",fem\0ale,"), *lines[800:802]]))
    (folder / "empty.csv").write_text(header)
    for i, line in enumerate(lines[802:820]):
        (folder / f"single{i:02}.csv").write_text(header + line)
    return folder


@pytest.fixture(scope="module")
def oracle(titanic_model, files, tmp_path_factory):
    """The lines and the rejects of trainer.predict."""
    return by_the_trainer(titanic_model.export, tmp_path_factory.mktemp("oracle"), files / "*.csv*")


def assert_same(rows: list[dict], lines: list[dict], *, exactly: bool = True) -> None:
    """The same records with the same predictions: the same bits, or within the tolerance of `verify`."""
    assert [(r["source"], r["offset"], r.get("key"), r.get("class")) for r in rows] == [
        (line["source"], line["offset"], line.get("key"), line.get("class")) for line in lines
    ]
    predicted, expected = (
        np.array(
            [list(r["probabilities"].values()) if "probabilities" in r else [r["value"]] for r in records], np.float32
        )
        for records in (rows, lines)
    )
    if exactly:
        assert predicted.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-6)


def test_the_same_as_trainer_predict_of_files_of_every_form(titanic_model, files, oracle, tmp_path):
    manifest = by_the_job(titanic_model.export, tmp_path / "out", files / "*.csv*")
    lines, rejects = oracle
    assert_same(rows_of(tmp_path / "out", manifest), lines, exactly=False)  # small files are predicted together
    assert rejects_of(tmp_path / "out", manifest) == sorted(rejects, key=lambda r: (r.source, r.offset))
    assert {reject.reason for reject in rejects} >= {"too_few_columns", "not_a_number"}
    assert manifest.classes == ("0", "1")


@pytest.fixture(scope="module")
def by_96(titanic_model, titanic_csv, tmp_path_factory) -> list[dict]:
    """The lines of trainer.predict in batches of 96."""
    folder = tmp_path_factory.mktemp("by_96")
    return by_the_trainer(titanic_model.export, folder, titanic_csv, more=("--batch_size", "96"))[0]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "tfrecord"])
def test_every_format_has_the_same_bits_and_the_columns_as_they_stand_in_the_file(
    titanic_model, titanic_csv, by_96, tmp_path, form
):
    """In batches of the same size as the lines of trainer.predict."""
    passed = ("--pass_through", "home.dest,survived,fare", "--pass_through", "cabin")
    more = ("--format", form, "--batch_size", "96", *passed)
    manifest = by_the_job(titanic_model.export, tmp_path / "out", titanic_csv, more=more)
    assert [Path(shard.path).name for shard in manifest.shards] == [f"predictions-00000-of-00001.{form}"]
    assert manifest.batch_size == 96
    assert manifest.pass_through == ("home.dest", "survived", "fare", "cabin")
    rows = rows_of(tmp_path / "out", manifest)
    assert_same(rows, by_96)
    with titanic_csv.open(newline="") as file:
        expected = [{name: row[name] for name in manifest.pass_through} for row in csv.DictReader(file)]
    assert [row["input"] for row in rows] == expected


def test_a_column_that_is_passed_through_and_is_not_text_rejects_its_row(titanic_model, titanic_csv, tmp_path):
    header, first, second = titanic_csv.read_bytes().splitlines(keepends=True)[:3]
    (tmp_path / "t.csv").write_bytes(header + first + second.rstrip(b"\n") + b"\xff\n")
    more = ("--pass_through", "home.dest")
    manifest = by_the_job(titanic_model.export, tmp_path / "out", tmp_path / "t.csv", more=more)
    (reject,) = rejects_of(tmp_path / "out", manifest)
    assert (reject.stage, reject.reason, reject.column) == ("pass_through", "not_utf8", "home.dest")
    assert reject.raw == second.rstrip(b"\n") + b"\xff"
    assert manifest.predicted == 1


def test_shards_end_by_their_size_and_keep_the_order_of_the_input(titanic_model, titanic_csv, tmp_path, capsys):
    more = ("--shard_size_mb", "0.02", "--batch_size", "50")
    manifest = by_the_job(titanic_model.export, tmp_path / "out", titanic_csv, more=more)
    pattern = r"time       1,000 records in [0-9.]+ s \([0-9,]+ records/s\), after [0-9.]+ s of start-up"
    assert re.search(pattern, capsys.readouterr().out)
    assert len(manifest.shards) > 3
    assert [shard.path for shard in manifest.shards] == sorted(shard.path for shard in manifest.shards)
    lines = [
        json.loads(line)
        for shard in manifest.shards
        for line in (tmp_path / "out" / shard.path).read_text().splitlines()
    ]
    assert [line["offset"] for line in lines] == sorted(line["offset"] for line in lines)


def test_bundles_that_are_run_twice_are_counted_and_written_once(titanic_model, files, oracle, tmp_path):
    more = ("--direct_runner_bundle_repeat", "1", "--range_mb", "0.01", "--batch_size", "64")
    manifest = by_the_job(titanic_model.export, tmp_path / "out", files / "*.csv*", more=more)
    assert_same(rows_of(tmp_path / "out", manifest), oracle[0], exactly=False)
    assert manifest.rejected == len(oracle[1])


def test_a_model_refuses_what_the_job_would_reject_with_the_reason(wages_export, tmp_path):
    """A number that is finite in the file and not as a float32: the reader may take it, and the model may not."""
    (tmp_path / "rows.csv").write_text("work,age\na,30\nnever seen,31\nb,3e38\n")
    lines, rejects = by_the_trainer(wages_export, tmp_path, tmp_path / "rows.csv")
    manifest = by_the_job(wages_export, tmp_path / "out", tmp_path / "rows.csv")
    assert_same(rows_of(tmp_path / "out", manifest), lines)
    assert {tuple(sorted(line)) for line in lines} == {("offset", "row", "source", "value")}
    assert rejects_of(tmp_path / "out", manifest) == rejects
    assert manifest.classes == ()


@pytest.fixture(scope="module")
def wages_export(wages, make_estimator, tmp_path_factory) -> str:
    """An export of a regression without a key."""
    from trainer.export.exporters import CheckedExport

    estimator = make_estimator(wages, steps=5)
    path = str(tmp_path_factory.mktemp("wages") / "export")
    return CheckedExport(wages).write(estimator, export_path=path, checkpoint_path=estimator.latest_checkpoint())


def failed(export: object, tmp_path: Path, capsys, *inputs: object, code: int = 1, more: tuple[str, ...] = ()) -> str:
    """What a job says that writes no manifest; one that is asked wrongly leaves nothing at all."""
    argv = ["--saved_model", str(export), "--output", str(tmp_path / "out"), *more, "--input", *map(str, inputs)]
    assert bulk.main([*argv, "--quiet"]) == code
    assert not (tmp_path / "out" / ("" if code == 2 else "manifest.json")).exists()
    return str(capsys.readouterr().err)


class TestAskedWrongly:
    def test_an_export_of_another_kind(self, stripes_model, titanic_csv, tmp_path, capsys):
        more = ("--pass_through", "name")
        assert "images have no columns" in failed(
            stripes_model.export, tmp_path, capsys, titanic_csv, more=more, code=2
        )

    def test_a_header_that_lacks_a_column(self, titanic_model, titanic_csv, tmp_path, capsys):
        first, rest = titanic_csv.read_text().split("\n", 1)
        (tmp_path / "t.csv").write_text(f"{first.replace('sex,', 'gender,')}\n{rest}")
        message = failed(titanic_model.export, tmp_path, capsys, tmp_path / "t.csv", code=2)
        assert "t.csv: the header lacks 'sex', which the model needs; it has 14 columns, 'pclass'" in message

    def test_a_column_that_no_file_has(self, titanic_model, titanic_csv, tmp_path, capsys):
        message = failed(titanic_model.export, tmp_path, capsys, titanic_csv, more=("--pass_through", "nome"), code=2)
        assert f"{titanic_csv}: has no column 'nome'" in message


class TestFailing:
    def test_too_many_rejects_are_kept_and_nothing_else(self, titanic_model, files, tmp_path, capsys):
        message = failed(titanic_model.export, tmp_path, capsys, files / "plain.csv", more=("--max_rejects", "0"))
        assert "rejected 2 of 202 read so far, which is more than --max_rejects 0" in message
        names = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
        assert names == ["rejects-00000.jsonl", "summary.json"]

    def test_an_input_without_records(self, titanic_model, files, tmp_path, capsys):
        assert "contains no records" in failed(titanic_model.export, tmp_path, capsys, files / "empty.csv")

    def test_a_gzip_file_that_is_cut_off(self, titanic_model, files, tmp_path, capsys):
        data = (files / "zipped.csv.gz").read_bytes()
        (tmp_path / "cut.csv.gz").write_bytes(data[: len(data) // 2])
        message = failed(titanic_model.export, tmp_path, capsys, tmp_path / "cut.csv.gz")
        assert "cut.csv.gz" in message
        assert "Traceback" not in message


def test_the_summary_as_json(titanic_model, files, tmp_path, capsys):
    argv = ["--saved_model", str(titanic_model.export), "--output", str(tmp_path / "out"), "--json", "--quiet"]
    capsys.readouterr()
    assert bulk.main([*argv, "--input", str(files / "plain.csv")]) == 0
    summary = json.loads(capsys.readouterr().out)
    counts = (summary["read"], summary["predicted"], summary["rejected"])
    assert counts == (202, 200, 2)
    assert summary["reasons"] == {"too_few_columns": 1, "not_a_number": 1}
    assert (
        PredictionsManifest.model_validate_json((tmp_path / "out" / "manifest.json").read_bytes()).run == summary["run"]
    )


def test_it_starts_without_tensorflows_log(titanic_model, files, tmp_path):
    inputs = ["--input", str(files / "plain.csv"), "--output", "out"]
    assert_held(["beam_jobs.predict", "--saved_model", str(titanic_model.export), *inputs], tmp_path)


def same_top(row: dict, line: dict) -> bool:
    """Whether a prediction has the class and the most probable classes of trainer.predict's line."""
    top = sorted(row["probabilities"].items(), key=lambda item: -item[1])[: len(line["top_5"])]
    return row["class"] == line["class"] and dict(top) == pytest.approx(line["top_5"], rel=1e-4, abs=1e-6)


@pytest.fixture
def photos(stripes, tmp_path) -> Path:
    """Images of every class, and three files that are none, are cut off, or decode to nothing."""
    raw = Path(stripes.path).parent / "raw"
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in sorted(raw.glob("*/*")):
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    paths = sorted(folder.iterdir())
    (folder / "none.jpg").write_bytes(b"this is no image")
    (folder / "cut.png").write_bytes(paths[0].read_bytes()[: paths[0].stat().st_size // 2])
    damaged = bytearray(paths[1].read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = b"\xff\xd8" * 20
    (folder / "damaged.jpg").write_bytes(damaged)
    return folder


def test_images(stripes_model, photos, tmp_path):
    lines, rejects = by_the_trainer(stripes_model.export, tmp_path, photos / "*")
    more = ("--batch_size", "32", "--direct_runner_bundle_repeat", "1")
    manifest = by_the_job(stripes_model.export, tmp_path / "out", photos / "*", more=more)
    rows = rows_of(tmp_path / "out", manifest)
    assert [row["source"] for row in rows] == [line["source"] for line in lines]
    assert all(map(same_top, rows, lines))
    job_rejects = rejects_of(tmp_path / "out", manifest)
    assert job_rejects == sorted(rejects, key=lambda reject: reject.source)
    assert {Path(reject.source).name for reject in job_rejects} >= {"none.jpg", "cut.png"}
    assert manifest.read == len(lines) + len(rejects)


def test_pairs(patterns_model, patterns, tmp_path):
    raw = Path(patterns.path).parent / "raw"
    paths = [str(path.relative_to(raw)) for path in sorted(raw.glob("*/*"))[:6]]
    (tmp_path / "pairs.csv").write_text(
        "left,right\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(paths)) + "one\n../x,y\n"
    )
    more = ("--root", str(raw))
    lines, rejects = by_the_trainer(patterns_model.export, tmp_path, tmp_path / "pairs.csv", more=more)
    manifest = by_the_job(patterns_model.export, tmp_path / "out", tmp_path / "pairs.csv", more=more)
    rows = rows_of(tmp_path / "out", manifest)
    assert [(row["offset"], row["input"]) for row in rows] == [
        (line["line"], {"left": line["left"], "right": line["right"]}) for line in lines
    ]
    assert all(map(same_top, rows, lines))
    assert rejects_of(tmp_path / "out", manifest) == rejects
    assert [reject.reason for reject in rejects] == ["too_few_columns", "path_outside_root"]


def test_files_that_are_no_images_at_all(stripes_model, tmp_path, capsys):
    for i in range(20):
        (tmp_path / f"{i}.jpg").write_text("no image")
    argv = ["--saved_model", str(stripes_model.export), "--input", f"{tmp_path}/*.jpg", "--quiet"]
    assert bulk.main([*argv, "--output", str(tmp_path / "out")]) == 2
    assert "0.jpg: not an image: its first bytes are b'no image'" in capsys.readouterr().err
    (tmp_path / "0.jpg").write_bytes(b"GIF87a")  # the others are rejected, like it
    assert bulk.main([*argv, "--output", str(tmp_path / "out")]) == 1
    assert "rejected 20 of 20 read so far" in capsys.readouterr().err
