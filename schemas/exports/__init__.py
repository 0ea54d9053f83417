"""Exported models: their notes, and rows or images through them in batches, with the verdict for each.

An export enters by `notes`, which needs no TensorFlow; `model` checks it and has its graph in a session; `rows` and
`images` predict what the readers give, and say why a row or an image has no prediction; `words` compares its classes
and vocabularies with a dataset's. TensorFlow is imported in functions only.
"""

__all__ = ["images", "model", "notes", "rows", "session", "unknown", "words"]
