"""SqueezeNext: its shape against the paper's figures, as counted from its graph."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from trainer.models.layers import LayerOptions
from trainer.models.squeezenext import squeezenext

TINY: dict[str, Any] = {"width": 0.5, "units": (1, 1, 1, 1)}
PREDICT = LayerOptions(training=False)


def network(*, side=227, **shape):
    """The graph of a network for 1000 classes, and its trainable variables by name."""
    with tf.Graph().as_default() as graph:
        images = tf.compat.v1.placeholder(tf.float32, [None, side, side, 3])
        squeezenext(images, classes=1000, options=PREDICT, **shape)
        return graph, tf.compat.v1.trainable_variables()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "parameters", "tolerance"),
    [(1, 0.72e6, 0.03), (2, 2_357_504, 1e-9)],  # the paper's figure, and one counted from the authors' definition
)
def test_has_the_published_size_at_227_pixels_and_1000_classes(width, parameters, tolerance):
    _, variables = network(width=width, units=(6, 6, 8, 1))
    counted = sum(variable.shape.num_elements() for variable in variables)
    assert counted == pytest.approx(parameters, rel=tolerance)


@pytest.mark.parametrize(("side", "sides"), [(227, [55, 28, 14, 7]), (64, [14, 7, 4, 2]), (28, [11, 6, 3, 2])])
def test_halves_the_image_stage_by_stage(side, sides):
    graph, _ = network(side=side, **TINY)
    outputs = [
        next(op for op in graph.get_operations() if op.type == "Conv2D" and f"/stage_{stage}/unit_1/expand/" in op.name)
        for stage in (1, 2, 3, 4)
    ]
    assert [op.outputs[0].shape[1] for op in outputs] == sides


@pytest.mark.parametrize("shape", [(None, 15, 64, 3), (None, None, 64, 3)])
def test_refuses_images_too_small_or_of_unknown_size(shape):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="known sides of 16 or more"):
        squeezenext(tf.compat.v1.placeholder(tf.float32, shape), classes=2, options=PREDICT, **TINY)
