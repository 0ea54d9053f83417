"""Bulk inference: files of rows and images through an exported model, to sharded files of predictions."""

__all__ = ["job", "options"]
