"""The kinds of features and labels: the columns of each, what a model reads of it, which values it rejects.

To add a kind, write its class here, add it to the union in `schemas.spec.features`, and run mypy: it names each
`match` that lacks the kind's TensorFlow ops.
"""
