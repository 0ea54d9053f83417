"""The kinds of features and labels: which columns each kind reads, what a model gets, and which values are rejected.

To add a kind, write its class here, add it to the union in `schemas.spec.features`, and run mypy. mypy names each
`match` statement that lacks the TensorFlow ops of the new kind.
"""
