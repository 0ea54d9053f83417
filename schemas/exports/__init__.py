"""Exported models: their notes, and rows or images through them in batches, with the verdict for each.

An export enters by `notes`, which needs no TensorFlow; `model` checks it and has its graph in a session; `predicting`
puts rows and images through it, and says why one has no prediction; `words` compares its classes and vocabularies with
a dataset's. TensorFlow is imported in functions only.
"""

__all__ = ["model", "notes", "predicting", "session", "words"]
