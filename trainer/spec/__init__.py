"""The options of a training, and the task spec that a model is built from. Only `transform_graph` needs TensorFlow."""

__all__ = ["dataset_checks", "hparams", "metrics", "options", "task_spec", "transform_graph"]
