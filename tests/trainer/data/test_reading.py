"""The flags that say how shards are read: what each changes, and what none of them changes."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

import pytest
import tensorflow as tf

from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions, input_options
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainOptions

TRAIN, EVAL = tf_estimator.ModeKeys.TRAIN, tf_estimator.ModeKeys.EVAL
IN_ORDER: dict[str, Any] = {"shuffle_buffer": 0, "deterministic": True, "seed": 1}


def asked(dataset, mode: str = TRAIN, **flags: Any) -> InputOptions:
    """What `input_fn` is given where the command is given these flags."""
    options = TrainOptions(data_dir=dataset.path, model_dir="", batch_size=16, **flags)
    return input_options(dataset, options, split="train", mode=mode)


def ages(dataset, options: InputOptions, mode: str = TRAIN) -> list[float]:
    read = input_fn(dataset, "train", mode=mode, options=dataclasses.replace(options, num_epochs=1))
    return [float(age) for features, _ in read for age in features["age"]]


@pytest.mark.parametrize(
    "flags",
    [
        {"cycle_length": 1},
        {"cycle_length": 50},
        {"block_length": 1},
        {"block_length": 100_000},
        {"prefetch": 0},
        {"prefetch": 7},
        {"read_threads": 1},
        {"read_threads": 3, "cycle_length": 2, "block_length": 5, "shuffle_buffer": 0},
    ],
)
@pytest.mark.parametrize("cache_bytes", [0, InputOptions.cache_bytes], ids=["streamed", "held"])
def test_every_record_is_read_once_whatever_is_asked(wages, flags, cache_bytes):
    options = dataclasses.replace(asked(wages, **flags), cache_bytes=cache_bytes)
    assert collections.Counter(ages(wages, options)) == collections.Counter(ages(wages, options, EVAL))


@pytest.mark.parametrize(("cycle_length", "block_length"), [(1, 7), (2, 1), (2, 7)])
def test_shards_are_read_in_turns(people, cycle_length, block_length):
    shards = [
        [
            tf.train.Example.FromString(record.numpy()).features.feature["age"].float_list.value[0]
            for record in tf.data.TFRecordDataset(shard)
        ]
        for shard in people.shards("train")
    ]
    assert len(shards) == 2
    turns = [[part[i : i + block_length] for i in range(0, len(part), block_length)] for part in shards]
    if cycle_length == 1:
        expected = list(itertools.chain(*shards))
    else:
        expected = [age for pair in itertools.zip_longest(*turns, fillvalue=[]) for block in pair for age in block]
    read = ages(people, asked(people, cycle_length=cycle_length, block_length=block_length, **IN_ORDER))
    assert read == pytest.approx(expected)


@pytest.mark.parametrize(("flags", "size"), [({}, 0), ({"read_threads": 3}, 3)])
def test_threads_of_the_inputs_own(wages, flags, size):
    read = input_fn(wages, "train", mode=TRAIN, options=asked(wages, **flags))
    assert (read.options().threading.private_threadpool_size or 0) == size


@pytest.mark.parametrize("prefetch", [None, 0, 7])
def test_prefetch(wages, prefetch):
    assert asked(wages, prefetch=prefetch).prefetch == (-1 if prefetch is None else prefetch)


def test_drop_remainder_gives_training_static_shapes_and_drops_nothing(wages):
    rows = wages.rows("train")
    assert rows % 16
    options = asked(wages, drop_remainder=True, seed=1, deterministic=True)
    read = input_fn(wages, "train", mode=TRAIN, options=options)
    assert read.element_spec[0]["age"].shape == [16]
    epochs = [float(age) for features, _ in read.take(2 * rows // 16 + 1) for age in features["age"]]
    assert sorted(epochs[:rows]) == sorted(epochs[rows : 2 * rows])
    assert len(ages(wages, asked(wages, EVAL, drop_remainder=True), EVAL)) == rows
