"""`millrace.Dataset`: its splits, schema, records and batches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import millrace
from schemas.dataset import open_dataset
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
