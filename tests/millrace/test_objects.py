"""`millrace.Dataset` and `millrace.Model`: splits, records, batches, contact sheets; how rows and images are found."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import millrace
from millrace.cli import main
from millrace.model import feature_values, image_request, row_request
from schemas.dataset import open_dataset
from schemas.dataset.records import Image as StoredImage
from schemas.dataset.records import RecordTable
from schemas.dataset.show import contact_sheet
from schemas.errors import MillraceError, UsageError
from schemas.formats import row_format
from schemas.rows import dense
from schemas.samples.images import write_shapes
from schemas.samples.tables import write_sample
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema, serving_columns
from tests.support.csv_datasets import PEOPLE
from tests.support.csv_reading import csv_schema, table_schema
from tests.support.dataset_faults import flip
from tests.support.people import HEADER, SCHEMA


class TestDataset:
    def test_splits_and_schema_are_those_of_the_directory(self, people):
        underneath = open_dataset(people.path)
        assert {name: split.rows for name, split in people.splits.items()} == {
            name: underneath.rows(name) for name in underneath.splits
        }
        assert people.splits["train"].shards == len(people.shards("train")) == 2
        assert people.schema == underneath.declared
        assert "people" in repr(people)

    def test_head_is_what_tensorflow_reads(self, people):
        (features, labels) = next(iter(people.as_tf_dataset("eval", batch_size=5)))
        records = people.head(5, split="eval")
        assert [record["income"] for record in records] == labels.numpy().tolist()
        assert [record["age"] for record in records] == features["age"].numpy().tolist()
        assert [record["scores"] for record in records] == features["scores"].numpy().tolist()
        assert all(record["id"].startswith("k") for record in records)

    def test_head_prints_a_line_for_each_feature_that_fits(self, people):
        lines = repr(people.head(100)).splitlines()  # some of them with long texts
        assert lines[0].startswith("age ")
        assert max(map(len, lines)) <= 140
        assert repr(people.head(3)[:1]) == repr(people.head(1))

    def test_head_reads_on_in_the_next_shard_and_ends_with_the_split(self, people):
        rows = people.splits["train"].rows
        keys = [record["id"] for record in people.head(10 * rows)]
        assert len(keys) == len(set(keys)) == rows
        assert [record["id"] for record in people.head(rows - 1)] == keys[:-1]

    def test_images_are_shown_by_their_size(self, shapes):
        record = shapes.head(2)[1]
        assert repr(record["image"]) == "72 x 72 JPEG"
        assert record["image"].data.startswith(b"\xff\xd8")
        assert record["image/class/text"] in ("disc", "square", "triangle")
        assert "72 x 72 JPEG" in repr(shapes.head(1))

    def test_batches(self, people, shapes):
        rows = people.splits["train"].rows
        in_order = [label.shape[0] for _, label in people.as_tf_dataset("train", batch_size=50)]
        assert sum(in_order) == rows
        assert {50} == set(in_order[:-1])
        shuffled = people.as_tf_dataset("train", batch_size=50, shuffle=True, num_epochs=2, drop_remainder=True, seed=1)
        assert [label.shape[0] for _, label in shuffled] == [50] * (2 * rows // 50)
        for shuffle in (False, True):
            ever = people.as_tf_dataset("eval", batch_size=1000, num_epochs=None, shuffle=shuffle)
            assert len(list(ever.take(3))) == 3
        features, _ = next(iter(shapes.as_tf_dataset("train", batch_size=4, shuffle=True)))
        assert features["image"].shape == (4, 64, 64, 3)

    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda d: d.head(0), UsageError, "n=0: must be 1 or more"),
            (lambda d: d.head(split="dev"), MillraceError, "no split 'dev'; it has train, eval, test"),
            (lambda d: d.as_tf_dataset("dev"), MillraceError, "no split 'dev'"),
            (lambda d: d.as_tf_dataset("eval", batch_size=0), UsageError, "batch_size=0"),
            (lambda d: d.as_tf_dataset("eval", num_epochs=0), UsageError, "num_epochs=0"),
            (lambda d: millrace.Dataset.open(f"{d.path}/nothing"), UsageError, "no manifest.json"),
            (lambda d: millrace.Dataset.open(d.opened.run_dir), UsageError, "belongs to the dataset .*; give that"),
        ],
    )
    def test_usage_errors(self, people, call, error, message):
        with pytest.raises(error, match=message):
            call(people)

    def test_a_damaged_record_is_named(self, people, tmp_path):
        shutil.copytree(people.path, tmp_path / "out")
        damaged = millrace.Dataset.open(tmp_path / "out")
        flip(Path(damaged.shards("train")[0]), 20)
        with pytest.raises(MillraceError, match=r"train-00000-of-00002.tfrecord: record 0 does not match its checksum"):
            damaged.head()


def opened(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


def test_records_with_what_their_ids_mean(people, capsys):
    assert main(["dataset", "head", people.path, "--split", "eval", "-n", "3", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["split"], output["rows"], output["contact_sheet"]) == ("eval", people.splits["eval"].rows, None)
    stored = people.head(3, split="eval")
    work = Path(people.path, people.opened.manifest.run, "transform_fn/assets/work").read_text().splitlines()
    for record, row in zip(output["records"], stored, strict=True):
        assert record["age"] == pytest.approx(row["age"])
        assert record["income means"] == ("<=50K", ">50K")[row["income"]]
        assert record["city means"] == (("Oslo", "Rome")[row["city"]] if row["city"] < 2 else "<other>")
        assert record["work means"] == (work[row["work"]] if row["work"] < len(work) else "<other>")
        assert record["pet means"] == f"pet{row['pet']}"
        assert len(record["title means"]) == 3
        assert "work_x_city means" not in record


def test_a_table_with_a_line_for_each_feature(people, capsys):
    assert main(["dataset", "head", people.path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"train: the first 5 of {people.splits['train'].rows:,} records of people"
    assert max(map(len, lines)) <= 140
    (income,) = {line.split()[0]: line for line in lines if line.startswith("income ")}.values()
    assert "50K (" in income


def test_images_become_a_contact_sheet_that_replaces_nothing(shapes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("shapes-train.png", "shapes-train-2.png"):
        assert main(["dataset", "head", shapes.path]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"contact sheet: {name}"
        sheet = opened(tmp_path / name)
        assert sheet.format == "PNG"
        count = min(24, shapes.splits["train"].rows)
        assert sheet.width >= 5 * 72
        assert sheet.height * sheet.width > count * 72 * 72
        assert len(sheet.convert("L").getcolors() or [0] * 300) > 20  # images, and not a blank page
    taken = ["dataset", "head", shapes.path, "--output", "shapes-train.png"]
    assert main(taken) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([*taken, "--overwrite", "-n", "1"]) == 0
    assert opened(tmp_path / "shapes-train.png").height < 120


def test_raw_pixels_keep_their_colours(shapes):
    red = StoredImage(bytes([250, 10, 10]) * 64, "RAW", 8, 8)
    sheet = Image.open(io.BytesIO(contact_sheet(RecordTable(({"image": red, "image/class/text": "x"},)))))
    assert (250, 10, 10) in {colour for _, colour in sheet.convert("RGB").getcolors(1 << 20) or ()}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--split", "other"], "has no such split; it has train, eval"),
        (["-n", "0"], "-n 0: must be from 1"),
        (["--output", "x.png"], "is for the contact sheet of images"),
    ],
)
def test_usage_errors(people, argv, message, capsys):
    assert main(["dataset", "head", people.path, *argv]) == 2
    assert message in capsys.readouterr().err


def test_what_is_no_dataset(tmp_path, capsys):
    assert main(["dataset", "head", str(tmp_path)]) != 0
    assert "Traceback" not in capsys.readouterr().err


SHAPES = str(Path(__file__).parents[2] / "schemas" / "shapes.yaml")
SWAPPED = """\
name: swapped
format: csv
csv: {header: present}
features:
  - {name: size, column: area, kind: numeric}
  - {name: other, column: size, kind: numeric}
label: {name: y, kind: category, values: [a, b]}
"""


def people_schema() -> Schema:
    return table_schema(SCHEMA)


def as_the_command_reads(path: Path, schema: Schema) -> dict[str, np.ndarray]:
    """The raw columns of a file, by the reader of `trainer.predict`."""
    rows = row_format(schema)
    file = rows.open_file(str(path), schema, label="optional", max_input_ratio=1000)
    (part,) = rows.plan_ranges(file, range_bytes=1 << 30)
    (decoded,) = rows.read_range(part, schema, with_split=False)
    assert not decoded.rejects
    return {c.name: dense(decoded.batch.column(c.name), c) for c in serving_columns(schema)}


@pytest.mark.parametrize(
    ("name", "read_options"), [("covertype", {"header": None}), ("mnist_csv", {}), ("titanic", {"dtype": str})]
)
def test_a_file_that_pandas_reads_is_what_the_command_reads(
    name: str, read_options: dict[str, Any], tmp_path: Path
) -> None:
    write_sample(name, str(tmp_path / "raw.csv"), rows=50, seed=1)
    schema = csv_schema(name)
    request = row_request(pd.read_csv(tmp_path / "raw.csv", keep_default_na=False, **read_options), schema)
    expected = as_the_command_reads(tmp_path / "raw.csv", schema)
    assert set(request.errors) == {""}
    assert request.inputs.keys() == expected.keys()
    for column, values in request.inputs.items():
        np.testing.assert_array_equal(values, expected[column], err_msg=column)


def test_columns_that_the_schema_names_are_found_by_name_and_by_position() -> None:
    schema = csv_schema("census")
    assert schema.csv.columns is not None
    cells = {column: [f"{column} 0", f"{column} 1"] for column in schema.csv.columns}
    by_place = dict(enumerate(cells.values()))
    assert feature_values(cells, schema) == feature_values(pd.DataFrame(by_place), schema)


@pytest.mark.parametrize("kind", ["rows", "columns", "frame"])
def test_groups_of_columns_become_their_feature(kind: str) -> None:
    names = HEADER.split(",")
    rows = [dict.fromkeys(names, "1") | {"p0": i, "p1": "2", "pet0": 0, "pet1": 1, "pet2": 0} for i in range(3)]
    columns = {name: [row[name] for row in rows] for name in names}
    data: Any = {"rows": rows, "columns": columns, "frame": pd.DataFrame(rows)}[kind]
    values = feature_values(data, people_schema())
    assert values["point"] == [(0, "2", "1"), (1, "2", "1"), (2, "2", "1")]
    assert values["pet"] == [(0, 1, 0)] * 3


def test_a_feature_is_found_under_the_column_that_it_is_read_from() -> None:
    schema = table_schema(SWAPPED.replace("size", "extent", 1))
    assert feature_values({"area": [1], "size": [2]}, schema) == {"extent": [1], "other": [2]}


def test_a_name_that_can_mean_two_columns_is_refused() -> None:
    schema = table_schema(SWAPPED)
    assert feature_values({"size": [1], "other": [2]}, schema) == {"size": [1], "other": [2]}
    with pytest.raises(UsageError, match="'size' is the name of a feature and of another column of the raw file"):
        feature_values({"area": [1], "size": [2]}, schema)


def test_the_message_names_missing_columns_and_how_to_give_them() -> None:
    schema = csv_schema("covertype")
    named = pd.DataFrame([range(54)], columns=[f"c{i}" for i in range(54)])
    with pytest.raises(UsageError) as refused:
        feature_values(named, schema)
    assert str(refused.value).splitlines() == [
        "no column terrain, wilderness_area, soil_type; the model needs terrain, wilderness_area, soil_type; "
        "found 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', ..., 'c53'",
        "terrain: expected one column 'terrain' of lists of 10 values, or the file's 0, 1, 2, 3, 4, 5, ..., 9",
        "wilderness_area: expected one column 'wilderness_area' of lists of 4 values, or the file's 10, 11, 12, 13",
        "soil_type: expected one column 'soil_type' of lists of 40 values, or the file's 14, 15, 16, 17, 18, 19, "
        "..., 53",
    ]
    row = dict.fromkeys(HEADER.split(","), "1")
    del row["pet1"]
    with pytest.raises(UsageError, match="no column pet; "):
        feature_values([row], people_schema())


@pytest.fixture
def schema() -> Schema:
    return table_schema(PEOPLE)


def test_numbers_are_read_as_from_the_file(schema):
    values = [" 4.5", 4.5, np.float32(4.5), "?", "", None, float("nan"), "1_0", "abc", "1e99", 7]
    rows = len(values)
    data: dict[str, list[Any]] = {c: [""] * rows for c in ("id", "hours", "work", "city", "member", "title", "words")}
    data |= {"age": values, "scores": [[1, "2", None]] * (rows - 1) + [[1]], "pet": [[1, 0, 0]] * rows}
    request = row_request(data, schema)
    expected = [4.5, 4.5, 4.5] + [np.nan] * 6
    np.testing.assert_array_equal(request.inputs["age"][:9], np.array(expected, np.float32))
    assert request.inputs["age"].dtype == np.float32
    wrong = "scores: wrong_number_of_values (1, expected 3)"
    assert request.errors == [*[""] * 7, *["age: not_a_number"] * 2, "age: out_of_range", wrong]
    np.testing.assert_array_equal(request.inputs["scores"][0], np.array([1, 2, np.nan], np.float32))


def test_strings_are_sent_as_bytes(schema):
    rows = [{"work": "Blå", "city": b"\xff", "member": 3, "title": None}]
    base_row = {"id": "k", "age": 1, "scores": [1, 2, 3], "hours": 1, "pet": [1, 0, 0], "words": ""}
    request = row_request([{**base_row, **rows[0]}], schema)
    sent = {name: request.inputs[name][0] for name in rows[0]}
    assert sent == {"work": "Blå".encode(), "city": b"\xff", "member": b"3", "title": b""}


def test_images_are_paths_or_bytes(tmp_path):
    schema = load_schema(SHAPES)
    assert not isinstance(schema, Schema)
    write_shapes(str(tmp_path / "raw"), per_shape=1, seed=1)
    (path,) = (tmp_path / "raw" / "disc").iterdir()
    request = image_request([path, str(path), path.read_bytes(), b"", b"text", tmp_path, "no"], schema)
    assert request.inputs["image"][:3].tolist() == [path.read_bytes()] * 3
    reasons = ["", "", "", "empty_file", "not_an_image", "not_a_file", "unreadable_file"]
    assert request.errors == [reason and f"image: {reason}" for reason in reasons]
    small = schema.model_copy(update={"images": schema.images.model_copy(update={"max_pixels": 10_000})})
    (tmp_path / "large").write_bytes(path.read_bytes() + bytes(small.images.max_file_bytes))
    large = [tmp_path / "large", (tmp_path / "large").read_bytes()]
    assert image_request(large, small).errors == ["image: file_too_large"] * 2
    with pytest.raises(UsageError, match="images are a list"):
        image_request(path, schema)
    with pytest.raises(UsageError, match="found int"):
        image_request([3], schema)
