"""Provides TensorFlow's Estimator on a TensorFlow release that no longer contains it."""

from trainer.estimator.loading import tf_estimator

__all__ = [
    "checkpoint_names",
    "tf_estimator",
]
