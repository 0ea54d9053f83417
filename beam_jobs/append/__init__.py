"""New input into a dataset that is there: with its own schema and transform, beside its old shards."""

__all__ = ["options", "run"]
