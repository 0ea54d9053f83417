"""Windows of examples are shuffled completely. Numbers stand for examples, in blocks as they are read."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainer.data.epochs import kept, shuffled_batches, windows, without_first
from trainer.data.input_options import Position

ROWS, BLOCK, BATCH = 20_000, 250, 50
BEGIN = Position()


def blocks(rows: int = ROWS) -> tf.data.Dataset:
    return tf.data.Dataset.range(rows).batch(BLOCK)


def in_windows(
    window: int, *, epochs: int = 1, rows: int = ROWS, seed: int | None = None, start: Position = BEGIN
) -> tf.data.Dataset:
    return windows(lambda _: blocks(rows), rows=rows, window=window, num_epochs=epochs, seed=seed, start=start)


def held(
    source: tf.data.Dataset, rows: int, epochs: int, *, seed: int | None = None, start: Position = BEGIN
) -> tf.data.Dataset:
    return kept(source, rows=rows, num_epochs=epochs, seed=seed, start=start)


def batches(parts: tf.data.Dataset, *, drop_remainder: bool = False) -> list[np.ndarray]:
    found = shuffled_batches(parts, batch_size=BATCH, drop_remainder=drop_remainder, deterministic=True)
    return [batch.numpy() for batch in found]


def neighbours_in_one_batch(order: np.ndarray) -> float:
    """The share of numbers that come in the same batch as the number that follows them."""
    batch = np.argsort(order) // BATCH
    return float((batch[:-1] == batch[1:]).mean())


@pytest.mark.parametrize("window", [60, 600, 1000, ROWS, 3 * ROWS])
def test_every_epoch_is_complete(window):
    order = np.concatenate(batches(in_windows(window, epochs=2, seed=1)))
    first, second = np.split(order, 2)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert list(first) != list(second)


def test_what_fits_in_a_window_is_shuffled_completely():
    order = np.concatenate(batches(in_windows(ROWS, seed=1)))
    assert abs(np.corrcoef(order, np.arange(ROWS))[0, 1]) < 0.03
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("window", [1000, 4000])
def test_as_good_as_a_shuffle_buffer_of_half_the_size(window):
    buffered = tf.data.Dataset.range(ROWS).shuffle(window // 2, seed=1).batch(BATCH)
    through_a_buffer = np.concatenate(list(buffered.as_numpy_iterator()))
    meet = neighbours_in_one_batch(np.concatenate(batches(in_windows(window, seed=1))))
    assert meet < 1.25 * neighbours_in_one_batch(through_a_buffer)
    assert meet < 2 * BATCH / window


def test_borders_of_windows_move_from_epoch_to_epoch():
    sizes = [len(part) for part, _ in in_windows(3000, epochs=8, seed=1).as_numpy_iterator()]
    assert max(sizes) == 3000
    borders = np.cumsum(sizes)
    assert {ROWS, 8 * ROWS} <= set(borders)  # no window holds examples of two epochs
    assert len(set(borders % 3000)) > 8


def test_kept_examples_are_read_once():
    read = []

    def examples():
        read.append(1)
        yield from (np.arange(10) + start for start in range(0, 100, 10))

    source = tf.data.Dataset.from_generator(examples, output_signature=tf.TensorSpec([None], tf.int64))
    order = np.concatenate(batches(held(source, 100, 5)))
    assert len(read) == 1
    epochs = [list(epoch) for epoch in np.split(order, 5)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_the_same_seed_gives_the_same_batches():
    def order(seed: int) -> list[int]:
        return list(np.concatenate(batches(in_windows(700, epochs=2, rows=2000, seed=seed))))

    assert order(3) == order(3)
    assert order(3) != order(4)


@pytest.mark.parametrize(("rows", "last"), [(2000, 50), (2030, 30), (7, 7)])
def test_only_the_last_batch_is_smaller(rows, last):
    sizes = [len(batch) for batch in batches(in_windows(300, rows=rows, seed=1))]
    assert set(sizes[:-1]) <= {BATCH}
    assert sizes[-1] == last
    full = batches(in_windows(300, rows=rows, seed=1), drop_remainder=True)
    assert [len(batch) for batch in full] == [BATCH] * (rows // BATCH)


def test_structures_stay_together():
    pairs = blocks(500).map(lambda x: ({"a": x, "b": tf.stack([x, -x], axis=1)}, x))
    found = shuffled_batches(held(pairs, 500, 1), batch_size=64, drop_remainder=True, deterministic=False)
    assert found.element_spec[0]["b"].shape == [64, 2]
    for features, x in found.as_numpy_iterator():
        assert (features["a"] == x).all()
        assert (features["b"] == np.stack([x, -x], axis=1)).all()


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("record", [0, 1, 299, 300, 301, 1999])
def test_what_begins_later_goes_on_as_what_began_before(epoch, record):
    """In windows, and held: the order of an epoch follows from its number, however many were read before."""
    start = Position(epoch, record)
    ways = (
        lambda epochs, start: in_windows(300, epochs=epochs, rows=2000, seed=1, start=start),
        lambda epochs, start: held(blocks(2000), 2000, epochs, seed=1, start=start),
    )
    for way in ways:
        whole = np.concatenate(batches(way(5, BEGIN)))
        resumed = np.concatenate(batches(way(5 - epoch, start)))
        assert list(resumed) == list(whole[start.records(2000) :])


@pytest.mark.parametrize("count", [0, 1, 249, 250, 4095, 4096, 4097, 9000, ROWS])
def test_without_the_first(count):
    left = without_first(blocks(), count)
    assert [x for block in left.as_numpy_iterator() for x in block] == list(range(count, ROWS))
