"""Decides where the steps of a training run: on one device, on several replicas, in a cluster, or on a TPU.

The models and the training loop do not depend on this. They get a `RunConfig`, which `run_config` makes from the
options.
"""

__all__ = [
    "cluster",
    "run_config",
    "tpu",
]
