"""Shuffled batches of examples that are held in memory: what a split of moderate size costs least.

A record that goes through a shard's reader, a shuffle buffer and the parser takes many times the work of copying its
parsed values. Here the examples are read once, into one tensor for each feature, and each batch gathers its own:
example `p` of an epoch is the one at the place that a random permutation gives `p`. The permutation is a cipher over
the places, with a key for each epoch: nothing is sorted, nothing is stored, and batches are made side by side.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

READ_TOGETHER = 1024  # records


def shuffled_batches(
    blocks: tf.data.Dataset,
    *,
    rows: int,
    batch_size: int,
    num_epochs: int | None,
    drop_remainder: bool,
    seed: int | None,
    deterministic: bool,
) -> tf.data.Dataset:
    """Reads the examples once, and makes batches of them, in another order each epoch.

    Args:
      blocks: the examples, of any structure of dense tensors, `[n, ...]` each; finite.
      rows: how many there are in all, at most.
      batch_size: examples a batch. A batch may hold the end of an epoch and the beginning of the next one.
      num_epochs: None for ever.
      drop_remainder: leave out a last batch that is not full, so that shapes are static.
      seed: None draws one.
      deterministic: the batches in the order of the permutation.

    Returns:
      A Dataset of the same structure, `[batch_size, ...]` each; fewer in the last batch, unless it is dropped.
    """
    together = blocks.rebatch(rows)  # one element: a tensor handed on from element to element costs more than a capture
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, drop_remainder=True)

    def batches(examples: Any, seed: tf.Tensor) -> tf.data.Dataset:
        count = tf.shape(tf.nest.flatten(examples)[0], tf.int64)[0]
        end = tf.int64.max if num_epochs is None else num_epochs * count
        end = end - end % batch_size if drop_remainder else end

        def gathered(begin: tf.Tensor) -> Any:
            place = tf.range(begin, tf.minimum(begin + batch_size, end))
            epoch = place // count
            keys = tf.stack([tf.fill(tf.shape(epoch), seed[0]), tf.fill(tf.shape(epoch), seed[1]), epoch], axis=1)
            # The public function pads keys of its own, and wrongly so where there is one for each place.
            shuffled = tf.raw_ops.RandomIndexShuffle(index=place % count, seed=keys, max_index=count - 1)
            shuffled = tf.ensure_shape(shuffled, [batch_size]) if drop_remainder else shuffled
            return tf.nest.map_structure(lambda values: tf.gather(values, shuffled), examples)

        begins = tf.data.Dataset.range(0, end, batch_size)
        return begins.map(gathered, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)

    return tf.data.Dataset.zip((together, seeds)).flat_map(batches)
