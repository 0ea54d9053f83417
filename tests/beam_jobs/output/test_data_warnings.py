"""Warnings about suspicious data: in the summary, in the manifest and in `show`."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from beam_jobs.core.options import JobOptions
from beam_jobs.preprocess import main
from beam_jobs.runs.job import run_job
from beam_jobs.transform.observed import Observed, Watched, observe_stored
from schemas.dataset import open_dataset
from schemas.dataset.command import main as dataset_main
from schemas.dataset.manifest import Manifest, read_manifest
from tests.support.image_files import write_folders
from tests.support.replaying import Folder, accounts_hold

pytestmark = pytest.mark.slow

ROWS = 500
FEATURES = {
    "fine": "{name: fine, kind: numeric}",
    "gone": "{name: gone, kind: numeric, missing: mean}",
    "nowhere": '{name: nowhere, kind: category, missing: "?"}',
    "silent": "{name: silent, kind: text}",
    "unsure": "{name: unsure, kind: bool, missing: true}",
    "still": "{name: still, kind: numeric, transform: none}",
    "one": "{name: one, kind: category}",
    "always": "{name: always, kind: bool}",
    "spelt": "{name: spelt, kind: category, values: [Red, Green]}",
    "part": "{name: part, columns: [p0, p3], kind: numeric, missing: 0.0, indicator: true}",
    "late": "{name: late, kind: numeric}",
    "rare": "{name: rare, kind: category, values: [x, y]}",
    "hot": "{name: hot, columns: [h0, h1], kind: one_hot}",
    "crossed": "{name: crossed, kind: cross, of: [one, hot], buckets: 9}",
    "pad": "{name: pad, kind: text, length: 4}",
    "w": "{name: w, kind: weight}",
}
HEADER = "fine,gone,nowhere,silent,unsure,still,one,always,spelt,p0,p1,p2,p3,late,rare,h0,h1,pad,w,y"


def row(i: int, y: str) -> str:
    """What is rare (`late`, `rare`) is in one row of all."""
    last = i == ROWS - 1
    return (
        f"{i},,{'' if i % 2 else 'NA'},,NA,4.5,same,yes,{'red' if i % 2 else 'green'},{i},,7,{i % 3},"
        f"{1 if last else 0},{'x' if last else 'z'},1,0,{'a b' if i % 2 else 'b'},0,{y}"
    )


LABEL = '{name: y, kind: category, values: ["no", "yes"]}'
BY_FILE = "split: {by: file, train: train.csv, eval: eval.csv}\n"


def write(folder: Folder) -> list[str]:
    """Arguments of a job over 500 rows of the train split, and a few ordinary ones of the eval split."""
    listed = "".join(f"  - {feature}\n" for feature in FEATURES.values())
    csv = 'name: odd\nformat: csv\ncsv: {header: present, missing: ["", NA]}\n'
    path = folder.write("odd.yaml", [f"{csv}features:\n{listed}label: {LABEL}\n{BY_FILE}"])
    folder.write("train.csv", [HEADER, *(row(i, "yes") for i in range(ROWS))])
    plain = "1,{0},{0},{0},yes,{0},{1},{2},Red,1,{0},{0},1,1,x,0,1,c d e f,2,{3}"
    evals = [plain.format(i, "same" if i % 2 else "else", "yes" if i % 2 else "no", "no") for i in range(9)]
    folder.write("eval.csv", [HEADER, *evals])
    inputs = str(folder.path / "*.csv")
    return ["--schema", path, "--input", inputs, "--output", folder.output, "--quiet", "--range_mb", "0.005"]


@pytest.mark.slow
def test_a_column_constant_in_the_train_split_is_a_warning(folder, capsys):
    assert main(write(folder)) == 0
    printed = capsys.readouterr().out
    manifest = read_manifest(folder.output)
    assert {(warning.feature, warning.code) for warning in manifest.warnings} == {
        ("gone", "missing"),
        ("nowhere", "missing"),
        ("silent", "missing"),
        ("unsure", "missing"),
        ("part", "missing"),
        ("part", "constant"),
        ("still", "constant"),
        ("one", "constant"),
        ("always", "constant"),
        ("hot", "constant"),
        ("w", "constant"),
        ("spelt", "values_never_occur"),
        ("y", "one_class"),
    }
    told = {(warning.feature, warning.code): warning.message for warning in manifest.warnings}
    assert told["gone", "missing"] == (
        "gone: the column is missing in every row of the train split, so a model learns nothing from it. "
        "Compare `csv: {missing: ...}` with the input, or declare it `kind: ignore`."
    )
    assert told["part", "missing"].startswith("part: 1 of 4 columns (p1) is missing in every row")
    assert told["part", "constant"].startswith("part: 1 of 4 columns (p2) is the same in every row")
    assert "the same in every row of the train split (stored as 4.5)" in told["still", "constant"]
    assert "none of its `values` (Red, Green) occurs in the train split" in told["spelt", "values_never_occur"]
    assert "the train split holds one class, 'yes'" in told["y", "one_class"]
    for message in told.values():
        assert f"warning    {message}" in printed
    assert dataset_main(["show", folder.output]) == 0
    shown = capsys.readouterr().out
    assert all(f"warning: {message}" in shown for message in told.values())
    assert dataset_main(["show", folder.output, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["warnings"] == [warning.model_dump() for warning in manifest.warnings]
    accounts_hold(open_dataset(folder.output))


def test_a_constant_numeric_label_is_a_warning(folder):
    features = "features: [{name: fine, kind: numeric, transform: none}]\nlabel: {name: y, kind: numeric}\n"
    folder.write("train.csv", ["fine,y", *(f"{i},3" for i in range(100))])
    folder.write("eval.csv", ["fine,y", "1,5"])
    schema = f"name: odd\nformat: csv\ncsv: {{header: present}}\n{features}{BY_FILE}"
    dataset = folder.job(schema, str(folder.path / "*.csv"))
    assert [(w.feature, w.code) for w in dataset.manifest.warnings] == [("y", "constant")]


@pytest.mark.slow
def test_a_split_for_evaluation_with_one_class_is_a_warning(folder):
    folder.write("train.csv", ["size,y", *(f"{i},{'no' if i % 2 else 'yes'}" for i in range(100))])
    folder.write("eval.csv", ["size,y", *(f"{i}.5,no" for i in range(20))])
    features = "features:\n  - {name: size, kind: numeric}\nlabel: {name: y, kind: category}\n"
    schema = f"name: odd\nformat: csv\ncsv: {{header: present}}\n{features}{BY_FILE}"
    dataset = folder.job(schema, str(folder.path / "*.csv"))
    (warning,) = dataset.manifest.warnings
    assert (warning.feature, warning.code) == ("y", "one_class")
    assert warning.message.startswith("y: the eval split holds one class, 'no', so AUC, precision and recall say")


@pytest.mark.slow
def test_ordinary_data_has_no_warnings(all_kinds, capsys):
    """But that some of its features tell the label, as they were made to."""
    others = [warning for warning in all_kinds.manifest.warnings if warning.code != "tells_label"]
    assert others == []
    assert dataset_main(["show", all_kinds.path]) == 0
    assert "same in every row" not in capsys.readouterr().out


def test_a_manifest_of_the_first_release_has_none(written):
    data = json.loads((written.output / "manifest.json").read_bytes())
    del data["warnings"]
    assert Manifest.model_validate_json(json.dumps(data)).warnings == ()


def test_of_a_preprocessing_fn_of_ones_own_the_outputs_are_observed(people):
    dataset = people.run(preprocessing_fn=f"{__name__}:one_of_three_moves")
    (warning,) = (warning for warning in dataset.manifest.warnings if warning.code != "tells_label")
    assert (warning.feature, warning.code) == ("three", "constant")
    assert warning.message.startswith("three: the values at 0, 2 are the same in every row of the train split")


def one_of_three_moves(inputs):
    size = inputs["size"]
    three = tf.stack([tf.zeros_like(size), size, tf.ones_like(size)], axis=1)
    return {"three": three, "y": tf.cast(tf.equal(inputs["y"], "yes"), tf.int64)}


@pytest.mark.slow
def test_images_of_one_class_are_a_warning(tmp_path):
    (tmp_path / "schema.yaml").write_text(
        "name: shapes\nformat: image_folder\nimages: {resize: {exact: [16, 16]}, channels: {means: [123, 117, 104]}}\n"
        "label: {values: [bar, disc]}\nsplit: {train: 0.5, eval: 0.5, test: 0}\n"
    )
    write_folders(tmp_path / "raw", each=20)
    options = JobOptions(
        schema=str(tmp_path / "schema.yaml"),
        input=(str(tmp_path / "raw/disc/*"),),
        output=str(tmp_path / "out"),
        quiet=True,
    )
    run_job(options)
    (warning,) = read_manifest(str(tmp_path / "out")).warnings
    assert (warning.feature, warning.code) == ("image/class/label", "one_class")
    assert "one class, 'disc'" in warning.message


def lists(*rows: list[float]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(rows, pa.list_(pa.float32()))], ["x"])


@pytest.mark.parametrize(
    ("batch", "same"),
    [
        (lists([1.0, 5.0], [2.0, 5.0]), {"1 5.0": 2}),
        (lists([0.0], [-0.0]), {"0 0.0": 2}),
        (lists([1.0], [1.0, 1.0]), {}),  # not as many in each row, which tells them apart
        (lists([], []), {}),
        (lists(*[[1.0]] * 99, [2.0]), {}),
        (lists(*[[1.0]] * 200), {"0 1.0": 200}),
    ],
)
def test_a_batch_counts_for_what_is_one_value_in_all_its_rows(batch, same):
    observed = Observed()
    observe_stored(batch, np.zeros(batch.num_rows, np.int8), Watched(None), observed)
    expected = {(value, "*same", "x"): rows for value, rows in same.items()}
    assert dict(observed.counts()) == expected
    observe_stored(batch, np.ones(batch.num_rows, np.int8), Watched(None), observed)  # of the eval split
    assert dict(observed.counts()) == expected


def test_of_several_batches_only_what_all_of_them_show_is_counted():
    observed = Observed()
    for batch in (lists([1.0, 5.0], [2.0, 5.0]), lists([1.0, 5.0]), lists([3.0, 5.0], [3.0, 5.0])):
        observe_stored(batch, np.zeros(batch.num_rows, np.int8), Watched(None), observed)
    assert dict(observed.counts()) == {("1 5.0", "*same", "x"): 5}
