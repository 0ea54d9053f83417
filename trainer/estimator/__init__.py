"""TensorFlow's Estimator, on a TensorFlow that no longer ships it."""

from trainer.estimator.loading import tf_estimator

__all__ = [
    "checkpoint_names",
    "tf_estimator",
]
