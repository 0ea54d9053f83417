"""The report of a dataset, and of a comparison: HTML pages that a person reads."""

__all__ = ["data_report", "leakage"]
