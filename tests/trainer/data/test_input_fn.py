"""What training, evaluation and prediction read of a dataset: here, prepared by other machines."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.errors import MillraceError
from tests.support.written_records import copy_of
from trainer.data.input_fn import ROW_BLOCK, input_fn, is_held
from trainer.data.input_options import InputOptions, input_options
from trainer.estimator import tf_estimator
from trainer.loop.plan import plan_training
from trainer.spec.options import TrainOptions

TRAIN, EVAL, PREDICT = (getattr(tf_estimator.ModeKeys, name) for name in ("TRAIN", "EVAL", "PREDICT"))
SMALL = InputOptions(batch_size=16, num_epochs=1, seed=3)


def batches(dataset: OpenDataset, split: str, mode: str, options: InputOptions, config=None) -> list:
    return list(input_fn(dataset, split, mode=mode, options=options, config=config))


def rows(read: list) -> list[tuple[float, ...]]:
    """Each record by the values that identify it."""
    return [
        (float(age), float(hours), int(label))
        for features, labels in read
        for age, hours, label in zip(*(x.numpy() for x in (features["age"], features["hours"], labels)), strict=True)
    ]


def all_rows(dataset: OpenDataset, split: str) -> collections.Counter:
    return collections.Counter(rows(batches(dataset, split, EVAL, SMALL)))


class TestWhatIsRead:
    def test_shapes_and_types(self, people):
        features, label = batches(people, "train", TRAIN, SMALL)[0]
        assert (label.dtype, label.shape) == (tf.int64, [16])
        shapes = {name: list(x.shape) for name, x in features.items() if not isinstance(x, tf.SparseTensor)}
        assert shapes["age"] == shapes["w"] == shapes["work"] == [16]
        assert shapes["scores"] == [16, 3]
        assert shapes["title"] == [16, 3]
        assert isinstance(features["words"], tf.SparseTensor)
        assert "income" not in features

    def test_regression_label(self, wages):
        _, label = batches(wages, "train", EVAL, SMALL)[0]
        assert (label.dtype, label.shape) == (tf.float32, [16])

    @pytest.mark.parametrize(("mode", "has_key"), [(TRAIN, False), (EVAL, False), (PREDICT, True)])
    def test_key_is_for_prediction_only(self, people, mode, has_key):
        features, _ = batches(people, "eval", mode, SMALL)[0]
        assert ("id" in features) == has_key

    def test_no_such_split(self, people):
        with pytest.raises(MillraceError, match="no split 'dev'"):
            batches(people, "dev", EVAL, SMALL)


@pytest.fixture(params=[0, InputOptions.cache_bytes], ids=["streamed", "held"])
def small(request) -> InputOptions:
    """Training reads a split from its shards in each epoch, or holds it in memory."""
    return dataclasses.replace(SMALL, cache_bytes=request.param)


class TestOrder:
    def test_training_reads_each_record_once_an_epoch(self, people, small):
        once = all_rows(people, "train")
        assert sum(once.values()) == people.rows("train")
        assert collections.Counter(rows(batches(people, "train", TRAIN, small))) == once
        twice = dataclasses.replace(small, num_epochs=2)
        assert collections.Counter(rows(batches(people, "train", TRAIN, twice))) == once + once

    def test_training_shuffles_anew_each_epoch(self, people, small):
        n = people.rows("train")
        read = rows(batches(people, "train", TRAIN, dataclasses.replace(small, num_epochs=2)))
        assert read[:n] != read[n:]
        assert read[:n] != rows(batches(people, "train", EVAL, small))

    def test_a_split_in_memory_is_shuffled_completely(self, people):
        n, order = people.rows("train"), rows(batches(people, "train", EVAL, SMALL))
        place = {row: i for i, row in enumerate(order) if order.count(row) == 1}
        read = rows(batches(people, "train", TRAIN, dataclasses.replace(SMALL, num_epochs=2, deterministic=True)))
        first, second = ([place[row] for row in epoch if row in place] for epoch in (read[:n], read[n:]))
        assert abs(np.corrcoef(first, np.arange(len(first)))[0, 1]) < 0.25
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.25

    @pytest.mark.parametrize("mode", [EVAL, PREDICT])
    def test_evaluation_reads_in_the_order_of_the_shards(self, people, mode):
        in_order = [
            tf.train.Example.FromString(record.numpy()).features.feature["hours"].float_list.value[0]
            for record in tf.data.TFRecordDataset(list(people.shards("train")))
        ]
        read = rows(batches(people, "train", mode, InputOptions(batch_size=16, seed=3)))
        assert [hours for _, hours, _ in read] == in_order


class TestHeld:
    """Parsed where all features are dense, as in `wages`; serialized where some are not, as in `people`."""

    def test_only_what_fits(self, wages, people):
        width = 4 + 8 + 4  # age, work, wage
        for dataset, least in ((wages, wages.rows("train") * width), (people, None)):
            size = least or sum(shard.bytes for shard in dataset.manifest.splits["train"].shards)
            assert is_held(dataset, "train", InputOptions(cache_bytes=size))
            assert not is_held(dataset, "train", InputOptions(cache_bytes=size - 1))
            assert not is_held(dataset, "train", InputOptions(shuffle_buffer=0))


def config(global_id: int | None, workers: int) -> SimpleNamespace:
    """What `input_fn` asks of a RunConfig."""
    return SimpleNamespace(global_id_in_cluster=global_id, num_worker_replicas=workers)


class TestWorkers:
    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [1, 2, 3, 5])  # the split has two shards
    def test_each_reads_its_own_part(self, people, small, workers):
        parts = [rows(batches(people, "train", TRAIN, small, config(i, workers))) for i in range(workers)]
        assert sum(map(collections.Counter, parts), collections.Counter()) == all_rows(people, "train")
        assert min(map(len, parts)) > 0

    @pytest.mark.parametrize("mode", [EVAL, PREDICT])
    def test_evaluation_is_never_divided(self, people, mode):
        assert len(rows(batches(people, "eval", mode, SMALL, config(1, 3)))) == people.rows("eval")

    @pytest.mark.parametrize("global_id", [None, 3, 4])  # an evaluator; parameter servers count on from the workers
    def test_other_tasks_have_no_part(self, global_id):
        assert SMALL.for_task(config(global_id, 3)) == SMALL


def test_gzip_shards(people, tmp_path):
    """The compression is the manifest's."""
    copy = copy_of(people, tmp_path)
    for split in copy.splits:
        for shard in copy.shards(split):
            records = [record.numpy() for record in tf.data.TFRecordDataset(shard)]
            with tf.io.TFRecordWriter(shard, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
                for record in records:
                    writer.write(record)
    zipped = dataclasses.replace(copy, manifest=copy.manifest.model_copy(update={"compression": "gzip"}))
    assert all_rows(zipped, "train") == all_rows(people, "train")
    assert np.isfinite([age for age, _, _ in all_rows(zipped, "train")]).all()


IN_ORDER: dict[str, Any] = {"shuffle_buffer": 0, "deterministic": True, "seed": 1}


def asked(dataset, mode: str = TRAIN, **flags: Any) -> InputOptions:
    """What `input_fn` is given where the command is given these flags."""
    options = TrainOptions(data_dir=dataset.path, model_dir="", batch_size=16, **flags)
    return input_options(dataset, plan_training(dataset, options), split="train", mode=mode)


def ages(dataset, options: InputOptions, mode: str = TRAIN, *, epochs: int = 1) -> list[float]:
    read = input_fn(dataset, "train", mode=mode, options=dataclasses.replace(options, num_epochs=epochs))
    return [float(age) for features, _ in read for age in features["age"]]


@pytest.mark.parametrize(
    "flags",
    [{"cycle_length": 1}, {"cycle_length": 50}, {"cycle_length": 2, "shuffle_buffer": 0}],
)
@pytest.mark.parametrize("cache_bytes", [0, InputOptions.cache_bytes], ids=["streamed", "held"])
def test_every_record_is_read_once_whatever_is_asked(wages, flags, cache_bytes):
    options = dataclasses.replace(asked(wages, **flags), cache_bytes=cache_bytes, num_epochs=1)
    trained, once = (
        collections.Counter(
            (float(age), int(work), float(wage))
            for features, label in input_fn(wages, "train", mode=mode, options=options)
            for age, work, wage in zip(features["age"], features["work"], label, strict=True)
        )
        for mode in (TRAIN, EVAL)
    )
    assert trained == once
    assert sum(once.values()) == wages.rows("train")


@pytest.mark.parametrize("cycle_length", [1, 2])
def test_shards_are_read_in_turns(people, cycle_length):
    shards = [
        [
            tf.train.Example.FromString(record.numpy()).features.feature["age"].float_list.value[0]
            for record in tf.data.TFRecordDataset(shard)
        ]
        for shard in people.shards("train")
    ]
    assert len(shards) == 2
    turns = [[part[i : i + ROW_BLOCK] for i in range(0, len(part), ROW_BLOCK)] for part in shards]
    if cycle_length == 1:
        expected = list(itertools.chain(*shards))
    else:
        expected = [age for pair in itertools.zip_longest(*turns, fillvalue=[]) for block in pair for age in block]
    read = ages(people, asked(people, cycle_length=cycle_length, **IN_ORDER))
    assert read == pytest.approx(expected)


def test_drop_remainder_gives_training_static_shapes_and_drops_nothing(wages):
    rows = wages.rows("train")
    assert rows % 16
    options = asked(wages, drop_remainder=True, seed=1, deterministic=True)
    read = input_fn(wages, "train", mode=TRAIN, options=options)
    assert read.element_spec[0]["age"].shape == [16]
    epochs = [float(age) for features, _ in read.take(2 * rows // 16 + 1) for age in features["age"]]
    assert sorted(epochs[:rows]) == sorted(epochs[rows : 2 * rows])
    assert len(ages(wages, asked(wages, EVAL, drop_remainder=True), EVAL)) == rows
