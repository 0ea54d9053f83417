"""A training's input that begins in the middle gives the batches that an uninterrupted one gives from there on."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions, Position
from trainer.estimator import tf_estimator

TRAIN = tf_estimator.ModeKeys.TRAIN
EXACT = InputOptions(batch_size=16, seed=1, deterministic=True)
BATCHES = 45  # of 16: one epoch and a half or more of each dataset


@pytest.mark.parametrize(
    ("position", "records", "expected"),
    [
        (Position(), 0, Position()),
        (Position(), 99, Position(0, 99)),
        (Position(), 100, Position(1)),
        (Position(2, 60), 150, Position(4, 10)),
    ],
)
def test_positions(position, records, expected):
    assert position.after(records, rows=100) == expected
    assert expected.records(100) == position.records(100) + records
    assert expected.next_epoch() == Position(expected.epoch + bool(expected.record))


def read(dataset: Dataset, options: InputOptions, count: int) -> list[list[np.ndarray]]:
    batches = input_fn(dataset, "train", mode=TRAIN, options=options)
    taken = itertools.islice(batches, count)
    dense = ([tf.sparse.to_dense(x) if isinstance(x, tf.SparseTensor) else x for x in f.values()] for f, _ in taken)
    return [[np.asarray(x) for x in batch] for batch in dense]


@pytest.mark.parametrize(
    ("data", "how"),
    [
        ("wages", {}),  # held in memory
        ("wages", {"cache_bytes": 0}),
        ("wages", {"shuffle_buffer": 0}),
        ("people", {"cache_bytes": 0, "cycle_length": 1, "block_length": 7}),  # sparse features
        ("stripes", {"shuffle_buffer": 50}),  # images: cropped and mirrored at random, too
    ],
)
def test_the_rest_is_the_same(request, data, how):
    dataset = request.getfixturevalue(data)
    options = dataclasses.replace(EXACT, **how)
    whole = read(dataset, options, BATCHES)
    rows = dataset.rows("train")
    for step in (7, rows // 16 + 1):
        start = Position().after(16 * step, rows=rows)
        rest = read(dataset, dataclasses.replace(options, start=start), BATCHES - step)
        for batch, expected in zip(rest, whole[step:], strict=True):
            for part, same in zip(batch, expected, strict=True):
                np.testing.assert_array_equal(part, same)
