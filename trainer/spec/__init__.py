"""The options of a training, and the task spec from which a model is built. Only `transform_graph` needs TensorFlow."""

__all__ = ["dataset_checks", "hparams", "metrics", "options", "task_spec", "transform_graph"]
