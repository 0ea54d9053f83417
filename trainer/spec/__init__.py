"""What a training is asked to do. Importing it imports no TensorFlow."""

__all__ = ["augmentation", "hparams", "image_problem", "options", "problem"]
