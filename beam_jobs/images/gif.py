"""Cuts a GIF file after its first frame, in TensorFlow ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from schemas.images.header import GIF_BLOCKS


def first_frame(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """A GIF cut after its first frame, and that frame's height and width. A decoder would hold all frames at once."""
    raw = tf.io.decode_raw(data, tf.uint8)

    def at(place: Any) -> tf.Tensor:
        return tf.cast(raw[place], tf.int32)  # raises beyond the end

    def table(flags: tf.Tensor) -> tf.Tensor:
        return tf.where(flags >= 128, tf.bitwise.left_shift(6, flags % 8), 0)

    # 0: a block is expected. 1: in the data of an extension. 2: in the data of the image. 3: after it.
    def step(state: tf.Tensor, place: tf.Tensor, frame: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        byte = at(place)

        def block() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return tf.cond(
                tf.equal(byte, 0x2C),
                lambda: (2, place + 11 + table(at(place + 9)), place),
                lambda: (1, place + 2, frame),
            )

        def data_block() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return tf.where(tf.equal(byte, 0), tf.where(tf.equal(state, 2), 3, 0), state), place + 1 + byte, frame

        known = tf.not_equal(state, 0) | tf.equal(byte, 0x21) | tf.equal(byte, 0x2C)
        with tf.control_dependencies([tf.debugging.Assert(known, ["bad_header: GIF without an image"])]):
            return tf.cond(tf.equal(state, 0), block, data_block)

    start = (tf.constant(0), 13 + table(at(10)), tf.constant(0))
    state, end, frame = tf.while_loop(
        lambda state, *_: state < 3, step, start, parallel_iterations=1, maximum_iterations=GIF_BLOCKS
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(state, 3), ["too_many_blocks: GIF"])]):
        end = tf.identity(end)
    cut = tf.strings.join([tf.strings.substr(data, 0, end), b";"])
    return cut, at(frame + 7) + 256 * at(frame + 8), at(frame + 5) + 256 * at(frame + 6)
