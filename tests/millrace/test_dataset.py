"""`millrace.Dataset`: its splits, schema, records and batches; and records as `millrace dataset head` shows them."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

import millrace
from millrace.cli import main
from schemas.dataset import open_dataset
from schemas.dataset.records import Image as StoredImage
from schemas.dataset.records import Records
from schemas.dataset.show import contact_sheet
from schemas.errors import MillraceError, UsageError
from tests.support.dataset_faults import flip


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

    def test_head_prints_as_a_table_that_fits(self, people):
        lines = repr(people.head(100)).splitlines()  # some of them with long texts
        assert len(lines) == 102
        assert lines[0].startswith("age")
        assert lines[-1].startswith("and ")
        assert max(map(len, lines)) < 200
        assert repr(people.head(3)[:1]).splitlines()[1] == repr(people.head(1)).splitlines()[1]

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
    told = json.loads(capsys.readouterr().out)
    assert (told["split"], told["rows"], told["contact_sheet"]) == ("eval", people.splits["eval"].rows, None)
    stored = people.head(3, split="eval")
    work = Path(people.path, people.opened.manifest.run, "transform_fn/assets/work").read_text().splitlines()
    for record, row in zip(told["records"], stored, strict=True):
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
    sheet = Image.open(io.BytesIO(contact_sheet(Records(({"image": red, "image/class/text": "x"},)), shapes.opened)))
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
