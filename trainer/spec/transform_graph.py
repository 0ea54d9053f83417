"""The dataset's tf.Transform graph, applied inside another graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft


@tf.autograph.experimental.do_not_convert  # tf.Transform's layer needs no AutoGraph, which takes a second to convert it
def transformed(transform_output: tft.TFTransformOutput, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a run's transform to raw features.

    Args:
      transform_output: the run's.
      raw: the raw features by name; the transform computes what it can from those.

    Returns:
      The transformed features by name.
    """
    return dict(transform_output.transform_raw_features(dict(raw), drop_unused_features=True))
