"""The kinds of features and labels, one file for each: what its columns are, what becomes of them, what it rejects.

To add a kind, write its class here, name it in the union of `schemas.spec.features`, and run mypy: it names the places
that still have to say what TensorFlow does with it.
"""
