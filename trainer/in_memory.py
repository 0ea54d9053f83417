"""Shuffled batches of records that are held in memory: what a split of moderate size costs least.

A record that goes through a shard's reader and a shuffle buffer takes several times the work of copying it. Here the
records are read once, into one tensor, and each batch gathers its own: record `p` of an epoch is the one at the place
that a random permutation gives `p`. The permutation is a cipher over the places, with a key for each epoch, so nothing
is sorted and nothing is stored, and batches are made side by side.
"""

from __future__ import annotations

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
    """Reads the records once, and makes batches of them, in another order each epoch.

    Args:
      blocks: the records, serialized, string `[n]` each; finite.
      rows: how many there are in all, at most.
      batch_size: records a batch. A batch may hold the end of an epoch and the beginning of the next one.
      num_epochs: None for ever.
      drop_remainder: leave out a last batch that is not full, so that shapes are static.
      seed: None draws one.
      deterministic: the batches in the order of the permutation.

    Returns:
      A Dataset of serialized records, string `[batch_size]`; fewer in the last batch, unless it is dropped.
    """
    together = blocks.rebatch(rows)  # one element: a tensor handed on from element to element costs more than a capture
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, drop_remainder=True)

    def batches(records: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
        count = tf.size(records, tf.int64)
        end = tf.int64.max if num_epochs is None else num_epochs * count
        end = end - end % batch_size if drop_remainder else end

        def gathered(begin: tf.Tensor) -> tf.Tensor:
            place = tf.range(begin, tf.minimum(begin + batch_size, end))
            epoch = place // count
            keys = tf.stack([tf.fill(tf.shape(epoch), seed[0]), tf.fill(tf.shape(epoch), seed[1]), epoch], axis=1)
            # The public function pads keys of its own, and wrongly so where there is one for each place.
            shuffled = tf.raw_ops.RandomIndexShuffle(index=place % count, seed=keys, max_index=count - 1)
            batch = tf.gather(records, shuffled)
            return tf.ensure_shape(batch, [batch_size]) if drop_remainder else batch

        begins = tf.data.Dataset.range(0, end, batch_size)
        return begins.map(gathered, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)

    return tf.data.Dataset.zip((together, seeds)).flat_map(batches)
