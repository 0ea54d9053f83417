"""The report of a dataset: one HTML page that a person reads before training on it."""

__all__ = ["data_report", "leakage"]
