"""The order of a training's examples: shuffled window by window, the same again, and begun anywhere in the middle."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset, open_dataset
from tests.support.csv_datasets import NUMBERS
from tests.support.datasets import written_rows
from trainer.data.epochs import repeated, shuffled_batches, windows
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions, Position
from trainer.estimator import tf_estimator

TRAIN, EVAL = tf_estimator.ModeKeys.TRAIN, tf_estimator.ModeKeys.EVAL
EXACT = InputOptions(batch_size=16, seed=1, deterministic=True)
BATCHES = 45  # of 16: one epoch and a half or more of each dataset


def read(dataset: OpenDataset, options: InputOptions, count: int) -> list[list[np.ndarray]]:
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
        ("people", {"cache_bytes": 0, "cycle_length": 1}),  # sparse features
        ("stripes", {"shuffle_buffer": 50, "cache_bytes": 0}),  # images: cropped and mirrored at random, too
        ("stripes", {}),  # held decoded
        ("patterns", {}),
        ("patterns", {"cache_bytes": 30 * 36 * 36 * 3}),  # pairs of windows
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


@pytest.mark.parametrize("data", ["wages", "stripes"])
@pytest.mark.parametrize("program_seed", [0, 3])
def test_the_seed_of_the_whole_program_changes_nothing(request, data, program_seed):
    dataset = request.getfixturevalue(data)
    options = dataclasses.replace(EXACT, shuffle_buffer=50, cache_bytes=0)
    expected = read(dataset, options, 3)
    tf.random.set_seed(program_seed)
    try:
        seeded_batches = read(dataset, options, 3)
    finally:
        tf.random.set_seed(None)
    for batch, same in zip(seeded_batches, expected, strict=True):
        for part, other in zip(batch, same, strict=True):
            np.testing.assert_array_equal(part, other)


ROWS, BLOCK, BATCH = 20_000, 250, 50
BEGIN = Position()


def blocks(rows: int = ROWS) -> tf.data.Dataset:
    return tf.data.Dataset.range(rows).batch(BLOCK)


def in_windows(window: int, *, epochs: int = 1, rows: int = ROWS, start: Position = BEGIN) -> tf.data.Dataset:
    return windows(lambda _: blocks(rows), rows=rows, window=window, num_epochs=epochs, seed=1, start=start)


def held(
    source: tf.data.Dataset, rows: int, epochs: int, *, seed: int | None = None, start: Position = BEGIN
) -> tf.data.Dataset:
    return repeated(source.rebatch(rows), num_epochs=epochs, seed=seed, start=start)


def batches(parts: tf.data.Dataset) -> list[np.ndarray]:
    dataset = shuffled_batches(parts, batch_size=BATCH, drop_remainder=False, deterministic=True)
    return [batch.numpy() for batch in dataset]


def neighbours_in_one_batch(order: np.ndarray) -> float:
    """The share of numbers that come in the same batch as the number that follows them."""
    batch = np.argsort(order) // BATCH
    return float((batch[:-1] == batch[1:]).mean())


@pytest.mark.parametrize("window", [1000, 4000])
def test_as_good_as_a_shuffle_buffer_of_half_the_size(window):
    buffered = tf.data.Dataset.range(ROWS).shuffle(window // 2, seed=1).batch(BATCH)
    through_a_buffer = np.concatenate(list(buffered.as_numpy_iterator()))
    meet = neighbours_in_one_batch(np.concatenate(batches(in_windows(window))))
    assert meet < 1.25 * neighbours_in_one_batch(through_a_buffer)
    assert meet < 2 * BATCH / window


def test_borders_of_windows_move_from_epoch_to_epoch():
    sizes = [len(part) for part, _ in in_windows(3000, epochs=8).as_numpy_iterator()]
    assert max(sizes) == 3000
    borders = np.cumsum(sizes)
    assert {ROWS, 8 * ROWS} <= set(borders)  # no window holds examples of two epochs
    assert len(set(borders % 3000)) > 8


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("record", [0, 1, 299, 300, 301, 1999])
def test_what_begins_later_goes_on_as_what_began_before(epoch, record):
    """In windows, and held: the order of an epoch follows from its number, however many were read before."""
    start = Position(epoch, record)
    ways = (
        lambda epochs, start: in_windows(300, epochs=epochs, rows=2000, start=start),
        lambda epochs, start: held(blocks(2000), 2000, epochs, seed=1, start=start),
    )
    for way in ways:
        whole = np.concatenate(batches(way(5, BEGIN)))
        resumed = np.concatenate(batches(way(5 - epoch, start)))
        assert list(resumed) == list(whole[start.records(2000) :])


@pytest.mark.slow
@pytest.mark.parametrize("mode", [TRAIN, EVAL])
def test_a_reader_continues_while_a_rerun_commits(tmp_path, mode):
    def write(rows: range, **more: Any) -> None:
        schema = NUMBERS.replace("train: 0.9, eval: 0.1", "train: 1.0, eval: 0")
        written_rows(tmp_path, schema, "x,y", (f"{i},{i}" for i in rows), num_shards=8, **more)

    write(range(400))
    options = InputOptions(batch_size=10, num_epochs=2, shuffle_buffer=0, cycle_length=1)
    batches = iter(input_fn(open_dataset(str(tmp_path / "out")), "train", mode=mode, options=options))
    read = collections.Counter(int(x) for x in next(batches)[0]["x"])
    write(range(1000, 1300), overwrite=True)
    read.update(int(x) for features, _ in batches for x in features["x"])
    assert read == collections.Counter([*range(400)] * 2)
    after = input_fn(open_dataset(str(tmp_path / "out")), "train", mode=EVAL, options=options)
    assert {int(x) for features, _ in after for x in features["x"]} == set(range(1000, 1300))
