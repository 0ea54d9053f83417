"""What could be changed about an input: which changes are tried, and that they read the same records."""

from __future__ import annotations

import collections
import dataclasses
import os
from pathlib import Path

import pytest
import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_fn import input_fn, is_held
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.profiling.input_changes import changes
from trainer.profiling.source import Source
from trainer.spec.hparams import Augmentation

TRAIN = tf_estimator.ModeKeys.TRAIN
STREAMED = InputOptions(batch_size=16, cache_bytes=0, num_epochs=1)


@pytest.fixture
def zipped(people, tmp_path) -> Dataset:
    """The same records in one gzip'd shard."""
    (source,) = (c.before for c in changes(Source(people, STREAMED), str(tmp_path / "copy")) if "shards" in c.setting)
    records = tf.data.TFRecordDataset(list(source.dataset.shards("train")))
    path = str(tmp_path / "zipped.tfrecord")
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for record in records:
            writer.write(record.numpy())
    train = people.manifest.splits["train"]
    shard = train.shards[0].model_copy(update={"path": path, "rows": train.rows, "bytes": Path(path).stat().st_size})
    splits = {"train": train.model_copy(update={"shards": (shard,)})}
    return dataclasses.replace(
        people, manifest=people.manifest.model_copy(update={"compression": "gzip", "splits": splits})
    )


def ages(source: Source) -> collections.Counter:
    return collections.Counter(
        round(float(age), 4)
        for features, _ in input_fn(source.dataset, "train", mode=TRAIN, options=source.options)
        for age in features["age"].numpy()
    )


@pytest.mark.slow
def test_each_change_reads_the_same_records(zipped, tmp_path):
    found = changes(Source(zipped, STREAMED), str(tmp_path / "samples"))
    of_the_job = "of beam_jobs.preprocess"
    assert [c.setting for c in found] == [
        f"--read_threads {os.cpu_count()}",
        "--prefetch 4",
        "--block_length 12500",
        f"--compression none, {of_the_job}",
        f"--num_shards 8, {of_the_job}",
    ]
    assert [c.sampled for c in found] == [False] * 3 + [True] * 2
    expected = ages(Source(zipped, STREAMED))
    assert all(ages(source) == expected for c in found for source in (c.before, c.after) if source != found[0].before)
    of_samples = [c.after.dataset for c in found if c.sampled]
    assert [dataset.compression for dataset in of_samples] == ["", "GZIP"]
    assert [len(dataset.shards("train")) for dataset in of_samples] == [1, 8]


def test_what_is_held_in_memory_is_read_once(people, tmp_path):
    told: list[str] = []
    matter = [f"--read_threads {os.cpu_count()}", "--prefetch 4"]
    assert [c.setting for c in changes(Source(people, InputOptions()), str(tmp_path), told.append)] == matter
    assert told == []
    change = changes(Source(people, InputOptions(deterministic=True)), str(tmp_path))[0]
    assert (change.setting, change.after.options.deterministic) == ("no --deterministic", False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"cycle_length": 1, "block_length": 12_500, "prefetch": 4}),
        ({"cycle_length": 1}, {"cycle_length": 2}),  # of two shards
        ({"block_length": 5, "prefetch": 2, "read_threads": 3}, {"block_length": 20, "prefetch": 8, "read_threads": 6}),
    ],
)
def test_another_value_of_each_flag_of_reading(people, tmp_path, options, expected):
    found = changes(Source(people, dataclasses.replace(STREAMED, **options)), str(tmp_path))
    for flag, value in expected.items():
        (change,) = (c for c in found if c.setting == f"--{flag} {value}")
        assert change.after.options == dataclasses.replace(change.before.options, **{flag: value})


def test_a_split_that_could_be_held_is(people, tmp_path):
    in_order = Source(people, InputOptions(batch_size=16, num_epochs=1, shuffle_buffer=0))
    change = changes(in_order, str(tmp_path))[0]
    assert change.setting == "no --shuffle_buffer, so that the split is held in memory"
    assert (change.before, change.sampled) == (in_order, False)
    assert is_held(people, "train", change.after.options)
    assert ages(change.before) == ages(change.after)


def test_images_as_pixels(stripes, tmp_path):
    plain = InputOptions(batch_size=8, num_epochs=1, shuffle_buffer=0, deterministic=True)
    options = dataclasses.replace(plain, augmentation=Augmentation(flip=False))
    change = next(c for c in changes(Source(stripes, options), str(tmp_path)) if "raw" in c.setting)
    rows = change.after.dataset.rows("train")
    schema = change.after.dataset.image_schema
    assert schema is not None
    assert schema.images.store == "raw"
    one = {"mode": tf_estimator.ModeKeys.EVAL, "options": dataclasses.replace(options, batch_size=rows)}
    (before, labels), (after, same) = (
        next(iter(input_fn(s.dataset, "train", **one))) for s in (change.before, change.after)
    )
    assert labels.shape == [rows]
    tf.debugging.assert_equal(labels, same)
    tf.debugging.assert_equal(before["image"], after["image"])
