"""What a TPU's step tells: its scalars go to the host, which writes them for TensorBoard."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def take_scalars() -> dict[str, tf.Tensor]:
    """The scalars that the model of this graph has summarized, by tag, but for its loss, which Estimator writes.

    No summary of the model remains in the graph's collection: a TPU writes none, and nothing else can read a value out
    of its step. Histograms and images are lost.
    """
    summaries = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    scalars = {
        tf.make_ndarray(summary.op.inputs[0].op.get_attr("value")).item().decode(): summary.op.inputs[1]
        for summary in summaries
        if summary.op.type == "ScalarSummary"
    }
    summaries.clear()
    scalars.pop("loss", None)
    return scalars


def write_scalars(config: Any, scalars: dict[str, tf.Tensor], *, after: tf.Operation) -> Any:
    """A host call, which writes the mean over the cores of each scalar.

    Args:
      config: the `RunConfig`: where, and after how many steps again.
      scalars: by tag, `[]`.
      after: the step; the values are told of the step number that it leads to.

    Returns:
      A function, and the tensors that it is called with: of each core `[1]`, of all together `[cores]`.
    """
    tags, every = list(scalars), config.save_summary_steps
    metadata = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})
    with tf.control_dependencies([after]):
        step = tf.identity(tf.compat.v1.train.get_global_step())

    def write(steps: tf.Tensor, *values: tf.Tensor) -> Any:
        if not every:
            return []
        written = tf.equal(steps[0] % every, 1 % every)  # the first step, and then again after each so many
        writer = tf.summary.create_file_writer(config.model_dir)
        with writer.as_default(step=tf.cast(steps[0], tf.int64)), tf.summary.record_if(written):
            for tag, value in zip(tags, values, strict=True):
                # as tf.summary.scalar does, for which TensorBoard must be installed
                tf.summary.write(tag, tf.reduce_mean(value), metadata=metadata)
            return tf.compat.v1.summary.all_v2_summary_ops()

    return write, [tf.reshape(x, [1]) for x in (step, *(tf.cast(value, tf.float32) for value in scalars.values()))]
