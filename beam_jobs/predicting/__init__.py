"""Bulk inference: applies an exported model to files of rows or images, and writes sharded files of predictions."""

__all__ = ["job", "options"]
