"""A model server: JSON over HTTP in, batches through an export, JSON out; newer exports take over while it runs."""

__all__ = ["options", "server"]
