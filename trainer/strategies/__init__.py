"""Where a training's steps run: on one device, on replicas side by side, in a cluster, on a TPU.

The models and the loop know none of this. They get a `RunConfig`, which `run_config` makes of the options.
"""

__all__ = [
    "cluster",
    "run_config",
    "tpu",
]
