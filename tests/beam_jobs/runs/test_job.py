"""One table says how raw data is read, for every format that a schema can declare."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from beam_jobs.preprocess import main
from beam_jobs.runs.job import run_job
from schemas.dataset import layout, open_dataset
from schemas.dataset.manifest import read_manifest
from schemas.dataset.verify import verify_dataset
from schemas.errors import MillraceError, UsageError
from tests.support.datasets import rejects_of
from tests.support.people import LEAN_SCHEMA, people_csv, people_row
from tests.support.written_records import examples, records


@pytest.mark.slow
def test_every_feature_kind_comes_out_as_it_should(all_kinds):
    dataset = all_kinds
    assert {s: dataset.rows(s) for s in dataset.splits} == {s: len(examples(dataset, s)) for s in dataset.splits}
    assert sum(dataset.rows(s) for s in dataset.splits) == 500
    train = {row["id"][0].decode(): row for row in examples(dataset, "train")}
    everything = train | {r["id"][0].decode(): r for s in ("eval", "test") for r in examples(dataset, s)}
    assert set(everything) == {f"k{i}" for i in range(500)}

    in_train = np.array([int(key[1:]) for key in train])
    ages = np.array([20 + i % 50 for i in in_train if i % 7])
    heights = np.array([150 + i % 40 for i in in_train if i % 11])
    for key, row in everything.items():
        i = int(key[1:])
        age = 0.0 if i % 7 == 0 else (20 + i % 50 - ages.mean()) / ages.std()
        assert row["age"] == pytest.approx([age], abs=1e-4)
        assert row["age_missing"] == [float(i % 7 == 0)]
        height = np.median(heights) if i % 11 == 0 else 150 + i % 40
        low, high = heights.min(), heights.max()
        assert row["height"] == pytest.approx([(height - low) / (high - low)], abs=0.03 if i % 11 == 0 else 1e-5)
        assert row["pay"] == pytest.approx([np.log1p(0 if i % 5 == 0 else i)], rel=1e-5)
        assert row["steps"] == [np.searchsorted([1, 5], i % 8, side="right")]
        assert row["point"] == pytest.approx([i % 10 / 10, i % 9 / 10, i % 8 / 10])
        assert row["grade"] in ([[0], [1], [2], [3]] if i % 3 == 2 else [[i % 3]])
        assert row["member"] == [[1.0], [0.0], [1.0], [0.0]][i % 4]
        assert row["pet"] == [i % 3]
        assert len(row["words"]) == 3
        assert len(row["bag"]) == 1 + i % 3
        assert row["w"] == [float(i % 3)]
        assert row["y"] == [[1], [0], [1]][i % 3]
        assert 0 <= row["city_x_grade"][0] < 20
        assert 0 <= row["street"][0] < 50
        assert "note" not in row
    buckets = np.bincount([row["size"][0] for row in train.values()])
    assert len(buckets) == 4
    assert buckets.min() > 0.15 * len(train)
    vocabulary = tft.TFTransformOutput(dataset.run_dir).vocabulary_by_name("city")
    assert set(vocabulary) == {b"a", b"b", b"c", b"nowhere"}
    city = {int(k[1:]): row["city"][0] for k, row in everything.items()}
    assert city[6] == list(vocabulary).index(b"nowhere")


@pytest.mark.slow
def test_every_feature_kind_is_verified_as_it_was_written(all_kinds):
    assert verify_dataset(all_kinds.path) == []


def test_the_manifest_accounts_for_every_record(people):
    bad = people_row(1).replace("k1,", "kbad,").replace(",yes!", ",perhaps").replace(",no", ",perhaps")
    people.raw.write_text(people_csv(500) + bad + "\n" + "too,few\n")
    dataset = people.run()
    manifest = dataset.manifest
    assert (manifest.read, manifest.written, manifest.rejected) == (502, 500, 2)
    (account,) = manifest.inputs
    assert (account.path, account.read, account.written, account.rejected) == (str(people.raw), 502, 500, 2)
    assert account.encoding == "utf-8"
    assert manifest.headers[account.header] == tuple(people_csv(0).strip().split(","))
    reasons = {(c.stage, c.reason): c.rows for c in manifest.counts if c.outcome == "rejected"}
    assert sum(reasons.values()) == 2
    assert {reason for _, reason in reasons} == {"label_not_in_values", "too_few_columns"}
    raw = people.raw.read_bytes()
    for reject in rejects_of(dataset):
        assert raw[reject.offset : reject.offset + len(reject.raw)] == reject.raw
        assert reject.source == str(people.raw)


@pytest.mark.slow
def test_parity_holds_raw_records_beside_their_transformed_ones(all_kinds):
    folder = Path(all_kinds.run_dir)
    raw, stored = (
        [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(folder / name))]
        for name in (layout.PARITY_RAW, layout.PARITY_TRANSFORMED)
    )
    assert len(raw) == len(stored) > 200
    for a, b in zip(raw, stored, strict=True):
        assert a.features.feature["id"].bytes_list.value == b.features.feature["id"].bytes_list.value
    assert raw[0].features.feature["city"].bytes_list.value[0].startswith(b" ")  # as it stands in the file


def test_an_existing_dataset_is_replaced_only_with_overwrite_and_the_old_run_is_kept(written):
    people, first = written, open_dataset(str(written.output))
    with pytest.raises(UsageError, match=r"already contains a dataset\. Give --overwrite"):
        people.run()
    second = people.run(overwrite=True)
    assert second.run != first.run
    assert second.manifest.previous == (first.run,)
    assert sum(records(first, "train").values()) == first.rows("train")


def test_a_folder_that_holds_something_else_is_left_alone(people):
    people.output.mkdir()
    (people.output / "thesis.doc").write_text("do not lose")
    with pytest.raises(UsageError, match=r"holds 'thesis\.doc', which is not part of a dataset"):
        people.run()


def test_too_many_rejects_fail_the_job_and_are_kept(people):
    people.raw.write_text(people_csv(500) + "too,few\n" * 20)
    assert main(people.argv()) == 1
    assert not (people.output / layout.MANIFEST).exists()
    assert os.listdir(people.output) == [layout.FAILED]
    assert len(people.failed_rejects()) == 20
    (summary,) = (people.output / layout.FAILED).glob("*/summary.json")
    account = json.loads(summary.read_text())
    assert "--max_rejects 10" in account["error"]
    assert account["rejected"] == {"too_few_columns": 20}
    assert people.run(max_rejects=20).manifest.rejected == 20


def test_an_input_without_a_valid_record_is_an_error(people):
    people.raw.write_text(people_csv(0) + "too,few\n" * 5)
    with pytest.raises(MillraceError, match="rejected 5 of 5 records, so") as failed:
        people.run()
    assert "too_few_columns 5" in str(failed.value)
    assert str(people.output / layout.FAILED) in str(failed.value)
    people.raw.write_text("")
    with pytest.raises(MillraceError, match="contains no records"):
        people.run()


def test_a_hopeless_job_gives_up_before_it_has_read_everything(people):
    people.raw.write_text(people_csv(2) + "too,few\n" * 20_000)
    with pytest.raises(MillraceError, match=r"read so far, which is more than"):
        run_job(people.options(range_mb=0.01))
    assert 0 < len(people.failed_rejects()) < 20_000


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("split: {by: [id], train: 0.999998, eval: 0.000001, test: 0.000001}", "the split 'eval' is empty"),
        ('split: {by: file, train: "a*.csv", eval: "b*.csv"}', "matches none of the patterns"),
    ],
)
def test_an_empty_split_or_a_file_of_no_split_is_an_error(people, split, message):
    people.schema.write_text(LEAN_SCHEMA[: LEAN_SCHEMA.index("split:")] + split + "\n")
    with pytest.raises(MillraceError, match=message):
        people.run()
    assert not (people.output / layout.MANIFEST).exists()


def test_files_make_splits(people):
    people.schema.write_text(
        LEAN_SCHEMA[: LEAN_SCHEMA.index("split:")] + 'split: {by: file, train: "a*.csv", eval: "b*.csv"}\n'
    )
    (people.path / "a1.csv").write_text(people_csv(300))
    (people.path / "b1.csv").write_text(people_csv(40))
    dataset = people.run(input=(str(people.path / "[ab]*.csv"),))
    assert {s: dataset.rows(s) for s in dataset.splits} == {"train": 300, "eval": 40}


@pytest.mark.slow
def test_new_data_goes_through_an_existing_transform(measured):
    people = measured
    first = people.run()
    (people.path / "more.csv").write_text("\n".join([people_csv(0).strip(), *map(people_row, range(1000, 1100))]))
    second = people.run(
        input=(str(people.path / "more.csv"),), output=str(people.path / "more"), transform_from=str(people.output)
    )
    assert second.manifest.transform_from == first.run
    for part in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):  # the graph is the same, byte for byte
        files = [
            {f.path.partition("/")[2]: f.sha256 for f in d.manifest.files if f"/{part}/" in f.path}
            for d in (first, second)
        ]
        assert files[0] == files[1] != {}
    assert sum(second.rows(s) for s in second.splits) == 100
    ages = {e["id"][0]: e["age"][0] for d in (first, second) for s in d.splits for e in examples(d, s)}
    assert ages[b"k1002"] == ages[b"k2"] != 0  # both are 22, scaled by the first dataset's mean and deviation


def test_a_transform_of_another_schema_is_refused(written):
    people = written
    people.schema.write_text(LEAN_SCHEMA.replace("transform: none", "transform: log"))
    different = r"\(features: age: transform: .none. in that dataset, .log. in this schema"
    with pytest.raises(UsageError, match=f"other features or another label {different}"):
        people.run(output=str(people.path / "more"), transform_from=str(people.output))


def double_age(inputs):
    """A preprocessing_fn of one's own."""
    age = tf.where(tf.math.is_nan(inputs["age"]), 0.0, inputs["age"])
    return {"age2": age * 2, "y": tf.cast(tf.equal(inputs["y"], "yes"), tf.int64)}


def test_a_preprocessing_fn_of_ones_own_replaces_the_derived_one(people):
    dataset = people.run(preprocessing_fn=f"{__name__}:double_age")
    assert set(examples(dataset, "train")[0]) == {"age2", "y"}
    assert dataset.manifest.preprocessing_fn == f"{__name__}:double_age"


def test_a_label_that_training_never_saw_is_a_reject(people):
    schema = LEAN_SCHEMA[: LEAN_SCHEMA.index("label:")] + "label: {name: likes_it, column: y, kind: category}\n"
    people.schema.write_text(schema + 'split: {by: file, train: "a.csv", eval: "b.csv"}\n')
    (people.path / "a.csv").write_text(people_csv(100))
    odd = people_row(3)[: people_row(3).rindex(",")] + ",maybe"
    (people.path / "b.csv").write_text(people_csv(50) + odd + "\n")
    inputs = (str(people.path / "a.csv"), str(people.path / "b.csv"))
    dataset = people.run(input=inputs)
    assert {s: dataset.rows(s) for s in dataset.splits} == {"train": 100, "eval": 50}
    (reject,) = rejects_of(dataset)
    assert (reject.stage, reject.reason, reject.column) == ("transform", "label_not_in_vocabulary", "y")
    assert reject.raw == odd.encode()
    assert reject.detail == "the label of this row of the eval split occurs in no row of the train split"
    other = people.run(input=inputs, output=str(people.path / "other"), transform_from=dataset.path)
    assert rejects_of(other)[0].detail == f"{reject.detail} of {dataset.path}, whose transform is applied"


@pytest.mark.parametrize("pattern", ["nowhere.csv", "no*where.csv"])
def test_missing_input_is_named_before_any_work(people, pattern, capsys):
    missing = str(people.path / pattern)
    assert main(["--schema", str(people.schema), "--input", missing, "--output", str(people.output)]) == 2
    assert pattern in capsys.readouterr().err
    assert not people.output.exists()


def test_the_summary_names_what_a_person_wants_to_know(people, capsys):
    """Its time is that of the whole command, though the manifest's is without the start."""
    before = time.monotonic()
    assert main(people.argv()) == 0
    most = time.monotonic() - before
    printed = capsys.readouterr().out
    manifest = read_manifest(str(people.output))
    match = re.search(r"time +([0-9.]+) s, ([0-9.]+) s of them for the job itself, ([0-9,]+) rows/s\n", printed)
    assert match is not None
    whole, job = float(match[1]), float(match[2])
    assert manifest.seconds - 0.06 <= whole <= most + 0.06  # rounded to a tenth
    assert job == pytest.approx(manifest.seconds, abs=0.06)
    assert int(match[3].replace(",", "")) == round(manifest.read / manifest.seconds)
    assert "500 rows from 1 file" in printed
    for split, content in manifest.splits.items():
        assert f"{split:<10} {content.rows:>12,} rows" in printed
    assert str(people.output / "manifest.json") in printed
