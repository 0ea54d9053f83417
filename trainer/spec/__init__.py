"""The options of a training, and the task spec that a model is built from. Importing it imports no TensorFlow."""

__all__ = ["augmentation", "hparams", "image_task_spec", "options", "task_spec"]
