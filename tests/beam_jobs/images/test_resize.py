"""Resizing: the pixels of `tf.image.resize` with antialias, for images of every shape."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.images.ingest import resize

RESIZE = tf.function(
    resize, input_signature=[tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int32)], autograph=False
)
SIDES = st.one_of(st.integers(1, 20), st.integers(1, 400), st.just(1), st.just(2000))


@settings(max_examples=60)
@given(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES), st.booleans(), st.integers(0, 2**32 - 1))
def test_pixels_are_those_of_tensorflows_own_resize(
    old: tuple[int, int], new: tuple[int, int], extreme: bool, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*old, 3)).astype(np.uint8)
    if extreme:
        pixels = np.where(pixels < 128, 0, 255).astype(np.uint8)
    expected = tf.cast(tf.round(tf.image.resize(pixels, new, antialias=True)), tf.uint8)
    np.testing.assert_array_equal(RESIZE(pixels, new), expected)
