"""Rejects of the transform: with their column, kept and reported even if the job fails, replayed."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beam_jobs.preprocess import main
from schemas.dataset import OpenDataset, layout
from schemas.errors import MillraceError
from tests.support.datasets import Folder, accounts_hold, rejects_of
from tests.support.written_records import examples

pytestmark = pytest.mark.slow

SCHEMA = """\
name: pays
format: csv
csv: {header: present}
features:
  - {name: id, kind: key}
  - {name: pay, column: pay now, kind: numeric, transform: log}
  - {name: debts, columns: [debt1, debt3], kind: numeric, transform: log, missing: 0.0}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""
HEADER = "id,pay now,debt1,debt2,debt3,y"
GOOD = [f"k{i},{i % 9 - 0.5},{i},{2 * i},,{['no', 'yes'][i % 2]}" for i in range(60)]
BAD = {"k7": "k7,-1,1,1,1,no", "k9": "k9,-5,1,1,1,no", "k11": "k11,1,1,-1e9,-2,yes", "k12": "k12,-2,-3,1,1,yes"}
ROWS = [BAD.get(row.partition(",")[0], row) for row in GOOD]


@pytest.fixture(scope="module")
def _pays_once(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("pays"))
    folder.job(SCHEMA, folder.write("rows.csv", [HEADER, *ROWS]))
    return folder


@pytest.fixture
def pays(folder: Folder, _pays_once: Folder) -> OpenDataset:
    """The rows' dataset in `folder`, which a test may change."""
    shutil.copytree(_pays_once.output, folder.output)
    return folder.dataset


def failing(folder: Folder, source: str, *options: str, schema: str = SCHEMA) -> int:
    path = folder.write("schema.yaml", [schema])
    return main(["--schema", path, "--input", source, "--output", str(folder.output), "--quiet", *options])


def test_what_is_not_finite_after_the_transform_is_a_reject_with_its_column(pays):
    dataset = pays
    accounts_hold(dataset)
    assert (dataset.manifest.written, dataset.manifest.rejected) == (56, 4)
    rejects_by_row = {reject.raw.decode(): reject for reject in rejects_of(dataset)}
    assert set(rejects_by_row) == set(BAD.values())
    assert {(r.stage, r.reason) for r in rejects_by_row.values()} == {("transform", "not_finite")}
    columns = {key: rejects_by_row[row].column for key, row in BAD.items()}
    assert columns == {"k7": "pay now", "k9": "pay now", "k11": "debt2", "k12": "debt1"}  # the first, by feature
    hint = "`transform: log` is for values above -1"
    assert rejects_by_row[BAD["k7"]].detail == f"the transform makes -inf of this value; {hint}"
    assert rejects_by_row[BAD["k9"]].detail == f"the transform makes nan of this value; {hint}"
    for split in dataset.splits:
        for row in examples(dataset, split):
            assert np.isfinite([*row["pay"], *row["debts"]]).all()


def test_columns_without_names_are_named_by_position(folder):
    schema = SCHEMA.replace("header: present", "num_columns: 6, header: none")
    for name, column in (("id", 0), ("pay", 1), ("y", 5)):
        schema = schema.replace(", column: pay now", "").replace(f"name: {name},", f"name: {name}, column: {column},")
    dataset = folder.job(schema.replace("[debt1, debt3]", "[2, 4]"), folder.write("rows.csv", ROWS))
    assert sorted(str(r.column) for r in rejects_of(dataset)) == ["1", "1", "2", "3"]


def mean_of_logs(inputs):
    """A preprocessing_fn of one's own, with an output that no column is called like."""
    logs = tf.math.log(inputs["pay"])
    return {"logs": logs, "both": tf.stack([logs, logs], axis=1), "y": tf.cast(tf.equal(inputs["y"], "yes"), tf.int64)}


def test_of_a_preprocessing_fn_of_ones_own_the_output_is_named(folder):
    source = folder.write("rows.csv", [HEADER, *GOOD])
    dataset = folder.job(SCHEMA, source, preprocessing_fn=f"{__name__}:mean_of_logs", max_rejects=20)
    rejects = rejects_of(dataset)
    assert {r.raw.split(b",")[1] for r in rejects} == {b"-0.5"}
    assert {(r.reason, r.column, r.detail) for r in rejects} == {
        ("not_finite", "both", "the transform makes nan of this row's values")
    }


def test_a_failed_job_keeps_and_reports_the_transforms_rejects(folder, capsys):
    name = "rows.csv.gz"
    rows = [row.replace(",no", ",maybe") if i % 20 == 0 else row for i, row in enumerate(ROWS)]
    assert failing(folder, folder.write(name, [HEADER, *rows]), "--max_rejects", "3") == 1
    errors = capsys.readouterr().err
    assert "records, which is more than --max_rejects 3" in errors
    assert "rejected: not_finite 4, label_not_in_values 3" in errors
    assert re.search(rf"\none of them: {folder.path / name}, byte \d+: \w+: \w.*\nThey are listed in ", errors)
    assert os.listdir(folder.output) == [layout.FAILED]
    rejects = folder.failed_rejects()
    assert {r.raw.decode() for r in rejects if r.reason == "not_finite"} == set(BAD.values())
    data = gzip.decompress(Path(folder.path / name).read_bytes())
    assert all(data[r.offset :].startswith(r.raw + b"\n") for r in rejects)
    (summary,) = folder.output.glob("failed/*/summary.json")
    assert json.loads(summary.read_text())["rejected"] == {"not_finite": 4, "label_not_in_values": 3}


def test_they_are_kept_when_a_split_is_empty(folder, capsys):
    schema = SCHEMA.replace("train: 0.6, eval: 0.2, test: 0.2", "train: 0.999998, eval: 0.000002, test: 0")
    assert failing(folder, folder.write("rows.csv", [HEADER, *ROWS]), schema=schema) == 1
    errors = capsys.readouterr().err
    assert "the split 'eval' is empty" in errors
    assert "rejected: not_finite 4" in errors
    assert {r.raw.decode() for r in folder.failed_rejects()} == set(BAD.values())


def test_rejects_are_kept_without_their_bytes_if_the_input_is_gone(folder, monkeypatch, capsys):
    from beam_jobs.records import result

    source = folder.write("rows.csv", [HEADER, *ROWS])

    def gone(*_, **__):
        Path(source).unlink()
        raise MillraceError("no room for the account")

    monkeypatch.setattr(result, "write_result", gone)
    assert failing(folder, source) == 1
    errors = capsys.readouterr().err
    assert "no room for the account" in errors
    assert "rejected: not_finite 4" in errors
    assert "without raw bytes" in errors
    assert [r.raw for r in folder.failed_rejects()] == [b""] * 4


def test_they_count_before_everything_is_read(folder):
    rows = [f"k{i},-3,1,1,1,no" for i in range(5_000)]
    with pytest.raises(MillraceError, match="read so far, which is more than") as failed:
        folder.job(SCHEMA, folder.write("rows.csv", [HEADER, *GOOD, *rows]), range_mb=0.01)
    assert "not_finite" in str(failed.value)
    assert 0 < len(folder.failed_rejects()) < 5_000


@pytest.mark.slow
def test_a_corrected_row_is_written_or_rejected_again_if_still_not_finite(folder, pays):
    again = {"k7": GOOD[7], "k9": "k9,-6,1,1,1,no"}
    outcome = folder.replay(folder.correct(pays, lambda r: again.get(r.raw.decode().partition(",")[0])))
    assert (outcome.added, len(outcome.choice.records)) == (1, 2)
    after = folder.dataset
    accounts_hold(after)
    left = {r.raw.decode(): r for r in rejects_of(after)}
    assert set(left) == {again["k9"], BAD["k11"], BAD["k12"]}
    assert (left[again["k9"]].reason, left[again["k9"]].column) == ("not_finite", "pay now")


def test_if_all_corrected_rows_are_rejected_again_they_are_kept_as_corrected(folder, pays, capsys):
    corrected = folder.correct(pays, lambda r: r.raw.decode().replace(",1,", ",-8,"))
    assert main(["--replay", corrected, "--append_to", str(folder.output), "--quiet"]) == 1
    assert "rejected: not_finite 4" in capsys.readouterr().err
    assert {r.raw.decode() for r in folder.failed_rejects()} == {row.replace(",1,", ",-8,") for row in BAD.values()}
